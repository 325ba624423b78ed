"""Laws made of another law.

``open_weights``: of one model whose pre-training is unknown; ``setting``: with an optimum
of a rate or a batch.
"""
