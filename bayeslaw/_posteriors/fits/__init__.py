"""Fit one law to one table, save the fit to a file, and refit it.

Imports `_posteriors` and the rooms below it.
"""
