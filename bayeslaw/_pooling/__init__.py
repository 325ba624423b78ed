"""One law on several domains that share a population.

Imports `_posteriors` and the rooms below it.
"""
