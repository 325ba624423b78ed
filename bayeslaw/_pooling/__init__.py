"""Fit one law to several domains that share a population. The room imports
`_posteriors` and the rooms below it.
"""
