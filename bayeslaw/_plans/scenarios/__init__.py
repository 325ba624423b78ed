"""Plans of several questions side by side."""
