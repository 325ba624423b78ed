"""Review a table of runs or posteriors before anything is decided. Each check passes,
deserves a look, or fails, and says what to do.
"""
