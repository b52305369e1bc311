"""Scenarios on several Ray nodes of this machine, whose network can be cut, slow or lossy."""
