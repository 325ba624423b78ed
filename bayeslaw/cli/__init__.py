"""The command line: thin commands over the Python functions of the same names, by
group, and what they share.

Imports `bayeslaw` as its users do, inside the commands, so that ``--help`` answers at
once.
"""

from bayeslaw.cli.app import main as main
