"""Buy runs batch by batch, from nothing: what is known, what next, when to stop."""
