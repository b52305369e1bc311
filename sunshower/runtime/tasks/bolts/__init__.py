"""Bolt tasks: automatic, manual and columnar bolts, dead letters."""
