"""Write self-contained pages: everything about a table of runs, and a run while it
trains.

Imports `plots`, `datasets`, `_running` and the rooms below them.
"""
