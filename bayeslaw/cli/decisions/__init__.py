"""What to do: ``plan``, ``anchors``, ``report``."""
