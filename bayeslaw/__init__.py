"""Bayesian scaling laws of continual pre-training: posteriors, calibrated forecasts,
plans.

The public names and where each lives are in ``__init__.pyi``. Importing this package
imports none of what it does: each name brings its module when first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
