"""Follow a run while it trains: forecast its end from its points so far."""
