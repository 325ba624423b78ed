"""Define the laws, one small file each; ``bayeslaw.law("chinchilla")`` loads one.

A law's file holds its formula, its priors with their sources, the reference run at
which contributions are stated, and the claims that the contract test verifies. A file
named ``_x.py`` holds parts that several laws share; it defines no law.
"""

import bayeslaw._law.recipe  # noqa: F401  (lets laws be pickled)
