"""Commands for what comes after a plan: a run on its way, a second batch of runs."""
