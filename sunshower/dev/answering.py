"""Checks whether a broker answers requests of Kafka's own protocol."""

from __future__ import annotations

import importlib.util

from sunshower.errors import Unobtainable


def brokers_seen_from(address: str, timeout_s: float = 5.0) -> set[int]:
    """The ids of all brokers in the metadata of the one at `address`; empty without an answer."""
    if not importlib.util.find_spec("confluent_kafka"):
        raise Unobtainable("the client of Kafka is missing: make setup EXTRAS=kafka,servers")
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": address, "log_level": 0})
    try:
        return set(client.list_topics(timeout=timeout_s).brokers)
    except KafkaException:
        return set()
