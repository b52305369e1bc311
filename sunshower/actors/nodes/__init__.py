"""Reads the nodes of a Ray cluster, and creates workers on them."""
