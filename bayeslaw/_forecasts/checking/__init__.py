"""Check a posterior further: the correctness of its inference at the training runs, and
forecasts of left-out stages.
"""
