"""Define the commands after a plan: follow a run, update by a second batch of runs."""
