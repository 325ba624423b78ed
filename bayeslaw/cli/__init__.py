"""Define the command line: thin commands over the Python functions of the same names,
by group, and their shared parts.

It imports `bayeslaw` as users do, inside the commands, so ``--help`` answers at once.
"""

from bayeslaw.cli.app import main as main
