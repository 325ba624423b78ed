"""Find the cheapest adaptation that keeps its promises with a stated probability.

Imports `_posteriors` and the rooms below it.
"""
