"""Update posteriors by a second batch of runs: compare it with its forecast, fit again,
and explain what changed.
"""
