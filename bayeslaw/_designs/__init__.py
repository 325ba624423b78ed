"""Choose the runs to buy next, and plan sequences of purchases.

Imports `_plans` and the rooms below it.
"""
