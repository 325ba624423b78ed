"""Plan on the simplex: tokens and shares of a mixture that keep every limit."""
