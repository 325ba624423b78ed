"""Posteriors that outlive the session: fits, their files, refits, chains of fits;
averages and pools in rooms of their own.

Imports `_inference` and the rooms below it. What stands above knows only the protocol
in `posterior`.
"""
