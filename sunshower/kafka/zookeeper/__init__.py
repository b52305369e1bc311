"""Kafka's metadata and consumer groups in ZooKeeper, as used up to Kafka 3."""
