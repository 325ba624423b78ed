"""Ask laws of loss curves about learning-rate schedules (Wang 2025): curves, turning
points, the best rate, length and replay.

The room imports `_forecasts` and the rooms below it, but neither `_plans` nor
`_designs`.
"""
