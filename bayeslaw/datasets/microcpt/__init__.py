"""Measure runs of continual pre-training: tiny byte-level decoders on one core.

``python -m bayeslaw.datasets.microcpt`` measures a grid, ``python -m
bayeslaw.datasets.microcpt.plan`` trains one plan. Both need the extra ``train``: ``pip
install "bayeslaw[train]"``. ``docs/microcpt.md`` tells what was measured, and how.
"""
