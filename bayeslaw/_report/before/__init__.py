"""Write the page before the first run: forecasts by priors alone, and the runs to buy."""
