"""The laws, one small file each, reached by name: ``bayeslaw.law("chinchilla")``.

A law's file holds its formula, its priors with their sources, the reference run at
which contributions are stated, and the claims the contract test verifies. A file named
``_x.py`` holds what several laws share and is no law.
"""

import bayeslaw._law.recipe  # noqa: F401  (lets laws be pickled)
