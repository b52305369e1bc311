"""Endurance experiments: repeated kills, a slow bolt, poison tuples, and a long run."""
