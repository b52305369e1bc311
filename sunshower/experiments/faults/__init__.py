"""The faults of experiments: targets, kinds, plans, and their injection."""
