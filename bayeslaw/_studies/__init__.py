"""Provide public commands that run for hours and can resume after a stop. The room
imports `_running` and the rooms below it.
"""
