"""What real tables taught of laws' parameters and of the scales beside them.

``learned.toml``: populations of parameters and scales, made by
`tests/studies/learned_scales.py`; ``record``: reads them.
``tables.toml``: what each table says of a law's parameters, made by
`tests/studies/experience.py`; ``tables``: reads them; ``priors``: what they teach of a
further lab's table, in any unit of the loss, also without one lab.
"""
