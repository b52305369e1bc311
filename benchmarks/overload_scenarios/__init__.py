"""Overload on a real Ray: `run(seconds)` of each module returns the figures of one run."""
