"""Provide the tools of all rooms: errors, files, numbers as people write them, the
set-up of JAX, other machines. The room imports no other room.
"""
