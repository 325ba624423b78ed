"""Keep programs that XLA compiled: made once in a process, and once on a machine."""
