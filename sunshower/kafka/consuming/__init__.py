"""Reads partitions: positions, batches of messages, decoding, progress, commits."""
