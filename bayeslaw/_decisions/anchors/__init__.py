"""Which runs to buy next.

Imports `planning` and the rooms below it.
"""
