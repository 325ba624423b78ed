"""What everything stands on: errors, files, numbers as people write them, the set-up of
JAX, other machines.

Imports no other room.
"""
