"""Public commands that run for hours and go on where they were.

Imports `_running` and the rooms below it.
"""
