"""What experiments break: targets, kinds of faults, plans, and what carries them out."""
