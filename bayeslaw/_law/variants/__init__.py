"""Make variants of a law.

``open_weights``: for one model whose pre-training is unknown; ``setting``: with an
optimal learning rate or batch size.
"""
