"""Brokers, offsets and consumer groups in ZooKeeper.

`options` is what a user gives to KafkaOptions, `group` the protocol of a consumer group.
"""
