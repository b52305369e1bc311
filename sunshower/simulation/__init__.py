"""Runs topologies in one thread, on virtual time, with all randomness from one seed."""

from sunshower.simulation.cluster import SimCluster

__all__ = ["SimCluster"]
