"""Show mixtures on the page: their plan, and linked sliders of shares."""
