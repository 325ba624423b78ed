"""Public commands that run for hours and go on where they were.

Imports `_decisions` and the rooms below it.
"""
