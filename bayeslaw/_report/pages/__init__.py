"""Write the smaller pages: before the first run, about a run while it trains, about changes by new runs."""
