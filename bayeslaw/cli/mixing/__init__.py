"""Define the commands for mixtures of domains."""
