"""The cheapest adaptation that keeps its promises with a stated probability.

Imports `_decisions`, `_posteriors` and the rooms below them.
"""
