"""Make variants of a law.

``open_weights``: for one model whose pre-training is unknown; ``setting``: with a term
for a setting such as the learning rate.
"""
