"""Compute what training costs: FLOPs by a stated formula, hours on stated hardware,
money.
"""
