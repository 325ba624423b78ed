"""How far a law is off: its smooth misfit inside the data, and its drift beyond them.

``axes``: where a run lies; ``process``: the misfit as a sum of basis functions;
``learning``: its scales and weights from a law's residuals; ``drift``: what stages left
out say of an error beyond the data. May import `_base`, `_law` (priors), and of
`_inference` the table and the diagnostics.
"""
