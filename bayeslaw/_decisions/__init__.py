"""What posteriors are for: forecasts and how good they are; plans, runs to buy and
curves in rooms of their own.

Imports `_posteriors` and the rooms below it.
"""
