"""Exactly once: streams of batches, compiled into ordinary spouts and bolts."""
