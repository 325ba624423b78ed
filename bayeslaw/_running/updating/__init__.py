"""Update posteriors by a second batch of runs: was it foreseen, and what changed?"""
