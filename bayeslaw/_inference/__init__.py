"""Compute the posterior of a law on one table: likelihood, coordinates, mode, chains,
importance sampling, diagnostics.

Imports `_base`, `_law` and `_tables`.
"""
