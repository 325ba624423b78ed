"""Which runs to buy next, and sequences of purchases.

Imports `_plans` and the rooms below it.
"""
