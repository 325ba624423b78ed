"""Model the error of a law: its smooth misfit inside the data, and its drift beyond
them.

``axes``: positions of a run; ``process``: the misfit as a sum of basis functions;
``learning``: its scales and weights from a law's residuals; ``drift``: errors beyond
the data, learned from left-out stages. May import `_base`, `_law` (priors), and of
`_inference` the table and the diagnostics.
"""
