"""Operators on the rows of a stream, batch by batch."""
