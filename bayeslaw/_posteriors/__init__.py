"""Define the protocol of posteriors, and everything that needs only this protocol:
draws at any table of runs, pairs of posteriors, outcomes of new runs, answers as
distributions.

Fits with their files are in `fits`, averages in `averaging`. Imports `_inference` and
the rooms below it. Rooms above know only the protocol in `posterior`.
"""
