"""Learn priors of laws' parameters from real tables.

``tables.toml`` has the posteriors of each table and is made by
`tests/studies/experience.py`. ``tables`` reads it. ``priors`` predicts the parameters
of another lab's table, in any unit of the loss; it can leave one lab out.
"""
