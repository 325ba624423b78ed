"""Link losses: correlate the errors of several domains, and map a loss to an accuracy."""
