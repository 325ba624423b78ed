"""Laws judged by forecasts of stages left out, compared, weighed and averaged.

Imports `_posteriors` and the rooms below it.
"""
