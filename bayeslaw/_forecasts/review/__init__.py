"""A second opinion before anything is decided: what is sound in a table of runs or in
posteriors, what deserves a look, what fails, and what to do about it.
"""
