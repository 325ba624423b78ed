"""A second batch of runs: what it says of the posterior made before, and what changed."""
