"""Learning-rate schedules: as functions, their areas, and those that logs show."""
