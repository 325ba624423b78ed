"""Follow a run while it trains, and update a fit when its table grows.

Imports `_forecasts`, `_plans` and the rooms below them.
"""
