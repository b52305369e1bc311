"""Spark sessions, in this process or on the Ray cluster through RayDP, and the jobs they run."""
