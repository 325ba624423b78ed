"""Judge laws by forecasts of left-out stages; compare, weigh and average them.

Imports `_posteriors` and the rooms below it.
"""
