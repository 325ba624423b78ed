"""Laws as values: terms and priors, the catalogue, formulas, and the recipe by which a
law is found again.

Imports `_base`.
"""
