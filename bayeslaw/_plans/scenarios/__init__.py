"""Compare the plans of several questions."""
