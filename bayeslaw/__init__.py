"""Bayesian scaling laws of continual pre-training: posteriors, calibrated forecasts,
plans.

``__init__.pyi`` lists the public names and their modules. Importing this package
imports no other module of it; a module is imported when one of its names is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
