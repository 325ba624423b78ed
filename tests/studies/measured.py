"""Locate published measured tables: ``data`` and ``reference`` of ``$BAYESLAW_SHARED``, by
default of the folder ``shared`` beside the checkout.
"""

import os
from pathlib import Path

BESIDE = Path(__file__).parents[3] / "shared"
SHARED = Path(os.environ.get("BAYESLAW_SHARED", BESIDE))
DATA = SHARED / "data"
