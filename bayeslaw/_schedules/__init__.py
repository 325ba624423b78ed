"""What laws of loss curves say about learning-rate schedules (Wang 2025): curves,
turning points, the best rate, length and replay.

Imports `_forecasts` and the rooms below it; neither `_plans` nor `_designs`.
"""
