"""Make forecasts and judge them: intervals of new runs, checks on held-out runs and
stages, reviews, misfits, sensitivity to priors.

Imports `_posteriors` and the rooms below it.
"""
