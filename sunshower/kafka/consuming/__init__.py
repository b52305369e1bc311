"""Reads partitions: positions, batches of messages, decoding, progress, commits.

In the order of a message: `subscription` (what is read), `start_position` (from where), `consumer`
(the client), `decoding` (records), `partition_progress` (what may be committed); `partition_reader`
joins them for one task.
"""
