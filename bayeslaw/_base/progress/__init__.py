"""Tell how far a job is and how long it still takes: `time_left` estimates it, `bar`
shows it.
"""
