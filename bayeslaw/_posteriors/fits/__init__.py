"""Fits that outlive the session: one law on one table, its file, its refits.

Imports `_posteriors` and the rooms below it.
"""
