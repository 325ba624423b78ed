"""What real tables taught of laws' parameters.

``tables.toml``: what each table says, made by `tests/studies/experience.py`; ``tables``:
reads it; ``priors``: what they teach of a further lab's table, in any unit of the loss,
also without one lab.
"""
