"""Interpret a table's cells and rows: names, records, summaries, settings.

Imports `_base`, and `runs` of this room.
"""
