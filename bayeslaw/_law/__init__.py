"""Define laws as values: terms and priors, the catalogue, formulas, and the recipe that
finds a saved law again.

Imports `_base`.
"""
