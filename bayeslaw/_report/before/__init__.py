"""The page before the first run: what the priors alone say, and which runs to buy."""
