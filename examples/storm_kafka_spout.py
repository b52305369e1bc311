"""Continues a topology of Storm that reads from Kafka, with brokers and offsets in ZooKeeper.

    sunshower dev up kafka --on-zookeeper
    python examples/storm_kafka_spout.py --fill 1000 --as-storm 200
    sunshower run examples/storm_kafka_spout.py
    python examples/storm_kafka_spout.py --offsets

The second command fills the topic `clicks`, and writes the nodes that a Storm topology would have
written after 200 messages of each of the four partitions. The third reads the other 200 messages,
until Ctrl-C, and appends them to visits.jsonl. The last shows the nodes, which Storm can read
again. docs/ZOOKEEPER.md explains each option. The address of ZooKeeper is 127.0.0.1:2181, or the
value of ZOOKEEPER.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from sunshower import JsonLines, Retry, Topology
from sunshower.kafka import (
    KafkaOptions,
    KafkaSpout,
    Received,
    StartPosition,
    StormOffsets,
    ZooKeeperBrokers,
)

ZOOKEEPER = os.environ.get("ZOOKEEPER", "127.0.0.1:2181")
KAFKA = {"bootstrap.servers": os.environ.get("KAFKA", "127.0.0.1:9092")}  # only for --fill
ROOT, ID, PARTITIONS = "/kafka-storm", "visits", 4  # zkRoot and id of Storm's SpoutConfig


class Visit(NamedTuple):
    page: str
    partition: int
    offset: int


def visit(message: Received) -> Visit:
    """Converts a message to a record, as a Scheme does in Storm."""
    return Visit(json.loads(message.value)["page"], message.partition, message.offset)


options = KafkaOptions(
    directory=ZooKeeperBrokers(ZOOKEEPER),  # ZkHosts
    store=StormOffsets(ZOOKEEPER, root=ROOT, id=ID),
    first=StartPosition.STORM,  # continue at the stored offset; without one, at the end
    behind_max=100_000,  # maxOffsetBehind
    commit_s=2.0,  # stateUpdateIntervalMs
)
source = KafkaSpout(
    {"group.id": ID}, topics=["clicks"], translate=visit, emits=Visit, options=options
)
topology = Topology("visits")
visits = topology.spout("clicks", source, parallelism=2, retry=Retry(dead_letters="dead.jsonl"))
visits.local_or_shuffle().bolt("store", JsonLines("visits.jsonl"))


def fill(messages: int) -> None:
    """Create the topic and write this number of messages, divided equally among partitions."""
    admin = AdminClient(KAFKA)
    if "clicks" not in admin.list_topics(timeout=10).topics:
        admin.create_topics([NewTopic("clicks", PARTITIONS)])["clicks"].result(30)
    producer = Producer(KAFKA)
    for number in range(messages):
        value = json.dumps({"page": f"/{number % 7}"})
        producer.produce("clicks", value, partition=number % PARTITIONS)
        producer.poll(0)
    if left := producer.flush(60):
        raise SystemExit(f"{left} messages were not delivered")


def write_as_storm(zookeeper: KazooClient, offset: int) -> None:
    """Write the node of Storm's PartitionManager.commit for each partition."""
    for partition in range(PARTITIONS):
        committed = {
            "topology": {"id": "visits-1-1400000000", "name": "visits"},
            "offset": offset,
            "partition": partition,
            "broker": {"host": "localhost", "port": 9092},
            "topic": "clicks",
        }
        path, value = f"{ROOT}/{ID}/partition_{partition}", json.dumps(committed).encode()
        zookeeper.ensure_path(path)
        zookeeper.set(path, value)


def show(zookeeper: KazooClient) -> None:
    for partition in range(PARTITIONS):
        path = f"{ROOT}/{ID}/partition_{partition}"
        print(path, zookeeper.get(path)[0].decode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Fill the topic, and write offsets as Storm does.")
    parser.add_argument("--fill", type=int, metavar="MESSAGES")
    parser.add_argument("--as-storm", type=int, metavar="OFFSET")
    parser.add_argument("--offsets", action="store_true")
    given = parser.parse_args()
    client = KazooClient(ZOOKEEPER)
    client.start()
    if given.fill:
        fill(given.fill)
    if given.as_storm is not None:
        write_as_storm(client, given.as_storm)
    if given.offsets:
        show(client)
    client.stop()
