"""What a table's cells and rows are: names, records, summaries, settings.

Imports `_base`, and of the room itself `runs`.
"""
