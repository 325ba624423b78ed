"""How far a job is and how long it still takes: reckoned in `time_left`, shown by `bar`."""
