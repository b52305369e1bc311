"""Operators: what a stream does with its rows, batch by batch."""
