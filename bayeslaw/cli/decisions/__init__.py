"""Define the commands for decisions: ``plan``, ``anchors``, ``report``."""
