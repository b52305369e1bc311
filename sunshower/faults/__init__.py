"""Experiments: hurt a running topology on any cluster, and prove from its history what survived."""
