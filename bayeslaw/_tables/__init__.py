"""Read and check tables of runs, decide what a law may be fitted to, compute
learning-rate schedules and their areas, and simulate runs.

Imports `_base` and `_law`.
"""
