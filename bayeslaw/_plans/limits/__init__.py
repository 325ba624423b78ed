"""Handle limits on several domains together, and limits that may be exceeded at a
price.
"""
