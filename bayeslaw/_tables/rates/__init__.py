"""Make learning-rate schedules, compute their areas, and read them from logs."""
