"""Where tables come from: files, and the stores of experiment trackers.

Imports `_base`. A tracker's library is imported only where its store is read.
"""
