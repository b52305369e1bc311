"""Finished batches go to PySpark, on this machine or on the Ray cluster through RayDP."""
