"""Interpret a table's cells and rows: names, records, summaries, settings.

Imports `_base`, and of the room itself `runs`.
"""
