"""Reads partitions: positions, batches of messages, decoding, offsets that may be committed."""
