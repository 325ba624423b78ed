"""Check a posterior further: is its inference right at the training runs, and what do
left-out stages tell about the next one?
"""
