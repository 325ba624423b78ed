"""Define the goals of purchases."""
