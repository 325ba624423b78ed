"""Tables of runs: read and checked, what a law may be fitted to, learning-rate
schedules and their areas, simulated runs.

Imports `_base` and `_law`.
"""
