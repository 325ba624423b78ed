"""Tell how far a job is and how long it takes: `time_left` estimates, `bar` shows."""
