"""Reads partitions: positions, batches of messages, decoding, progress, commits.

In the order of a message: `subscription` (what is read), `start_position` (from where), `consumer`
(the client), `consumer_loop` (its polls and events, for records and batches), `decoding` (records),
`partition_progress` (what may be committed); `partition_reader` joins them for one task.
"""
