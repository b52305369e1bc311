"""Which partitions exist, and where offsets are committed.

`ports` declares both and the progress of a partition; `broker_metadata` and `broker_offsets` ask
the brokers, and `topic_ends` reads the last messages of a topic.
"""
