"""Buy runs batch by batch, from nothing: what is known, what to buy next, and when to
stop.
"""
