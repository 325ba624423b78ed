"""What posteriors offer upwards, and what follows from it alone: draws at any table
of runs, pairs of posteriors, outcomes of new runs, answers that are a distribution.

Fits with their files, and averages, in rooms of their own. Imports `_inference` and the
rooms below it. What stands above knows only the protocol in `posterior`.
"""
