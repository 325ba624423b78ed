"""Review a table of runs or posteriors before anything is decided: what is sound, what
deserves a look, what fails, and what to do about it.
"""
