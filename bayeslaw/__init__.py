"""Bayesian scaling laws of continual pre-training: posteriors, calibrated forecasts,
plans.

``__init__.pyi`` lists the public names and their modules. Importing this package
imports no other module of it; a module is imported when one of its names is first used.
"""

import lazy_loader

_public, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str):
    """Import a public name; for another name, say which is meant."""
    if name not in __all__:
        import difflib

        close = difflib.get_close_matches(name, __all__, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise AttributeError(f"module 'bayeslaw' has no {name!r}{hint}", name=name)
    return _public(name)
