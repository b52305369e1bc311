"""Joins of ordinary streams: of two streams within a window, and of a stream with a table."""
