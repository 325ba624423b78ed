"""What real tables taught of laws' parameters and of the scales beside them.

``learned.toml``: the numbers, made by `tests/studies/learned_scales.py`; ``record``:
reads them.
"""
