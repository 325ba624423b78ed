"""Find what looks wrong in a table of runs before any law is fitted."""
