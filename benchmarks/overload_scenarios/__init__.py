"""Overload of a real Ray: each module has `run(seconds)`, which returns what came of it."""
