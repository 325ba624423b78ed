"""Make variants of a law: with a term for a setting such as the learning rate."""
