"""Writes records to Kafka.

`producer` sends messages and reports their delivery; `kafka_bolt` has the bolts that do so: plain,
in transactions, and as the only writer of a topic.
"""
