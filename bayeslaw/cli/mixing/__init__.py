"""Commands about mixtures of domains."""
