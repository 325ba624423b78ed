"""Further checks of a posterior: whether its inference is right at the runs that were
fitted, and what the stages left out say of the next one.
"""
