"""Reads partitions: positions, batches of messages, decoding, commits.

In the order of a message: `subscription` (what is read), `start_position` (from where), `consumer`
(the client, and its polls and events, for records and batches), `decoding` (records),
`partition_reader` joins them for one task. `state/log_progress` says what may be committed.
"""
