"""``python -m bayeslaw``: the command line.

It is imported by name, as the front door builds on no room.
"""

from importlib import import_module

import_module("bayeslaw.cli").main()
