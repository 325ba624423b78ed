"""Keep programs that XLA compiled, so that each is compiled once on a machine."""
