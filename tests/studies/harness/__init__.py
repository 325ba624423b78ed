"""Measure runs of continual pre-training: tiny byte-level decoders on one core.

With ``PYTHONPATH=tests/studies``, ``python -m harness`` measures a grid and ``python -m
harness.plan`` trains one plan. Both need the extra ``train``: ``pip install
"bayeslaw[train]"``. ``docs/microcpt.md`` tells what was measured, and how.
"""
