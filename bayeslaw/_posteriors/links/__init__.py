"""What links losses: the errors of several domains, and a loss with an accuracy."""
