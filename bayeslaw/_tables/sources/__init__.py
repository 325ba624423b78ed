"""Read tables from files and from the stores of experiment trackers.

Imports `_base`. A tracker's library is imported only when its store is read.
"""
