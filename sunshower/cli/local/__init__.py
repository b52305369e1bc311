"""Runs on this machine: again at each save, and on a Ray that outlives a run."""
