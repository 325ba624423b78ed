"""Update posteriors by a second batch: compare, fit again, explain."""
