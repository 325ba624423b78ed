"""A run while it trains: what its points so far say of its end."""
