"""Buy runs batch by batch, from nothing: the present posterior, the runs to buy next,
and when to stop.
"""
