"""The partition of a key, on a real Kafka: that of Java's default producer."""

from __future__ import annotations

import random
from typing import Any, NamedTuple
from zlib import crc32

import pytest

from sunshower.dev.kafka import Kafka
from sunshower.kafka.producing.kafka_bolt import KafkaBolt, SoleWriterBolt, TransactionalKafkaBolt
from sunshower.topologies.retry import DeadLetter
from tests.kafka.producing.rig import BoltRig
from tests.kafka.topics import new_topic, read_all

PARTITIONS = 7


class Item(NamedTuple):
    key: Any
    value: str = "x"


def java_partition(key: bytes, partitions: int = PARTITIONS) -> int:
    """`toPositive(murmur2(key)) % partitions` of org.apache.kafka.common.utils.Utils."""
    mask, factor = 0xFFFFFFFF, 0x5BD1E995
    digest = 0x9747B28C ^ len(key)
    whole = len(key) - len(key) % 4
    for at in range(0, whole, 4):
        part = int.from_bytes(key[at : at + 4], "little") * factor & mask
        part = (part ^ part >> 24) * factor & mask
        digest = digest * factor & mask ^ part
    if left := key[whole:]:
        digest = (digest ^ int.from_bytes(left, "little")) * factor & mask
    digest = (digest ^ digest >> 13) * factor & mask
    return ((digest ^ digest >> 15) & 0x7FFFFFFF) % partitions


# Values of Kafka's own test, org.apache.kafka.common.utils.UtilsTest.testMurmur2.
OF_JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def keys() -> list[bytes]:
    """Keys of every length up to 20, with bytes above 127, which a signed hash treats apart."""
    chance = random.Random(3)
    return [b"", *(chance.randbytes(1 + number % 20) for number in range(80))]


@pytest.fixture
def topic(kafka: Kafka) -> str:
    return new_topic(kafka.bootstrap, PARTITIONS)


def partitions_of(kafka: Kafka, topic: str) -> dict[bytes | None, int | None]:
    return {message.key(): message.partition() for message in read_all(kafka.bootstrap, topic)}


def send(bolt: Any, records: list[Any]) -> None:
    rig = BoltRig(bolt)
    try:
        rig.take(*records)
        rig.until(lambda out: len(out.acked) == len(records))
    finally:
        bolt.cleanup()


@pytest.mark.parametrize("key", OF_JAVA)
def test_the_hash_of_this_test_is_that_of_kafkas_own_tests(key: bytes) -> None:
    assert java_partition(key, 1_000_003) == (OF_JAVA[key] & 0x7FFFFFFF) % 1_000_003


@pytest.mark.parametrize("kind", ["KafkaBolt", "TransactionalKafkaBolt", "SoleWriterBolt"])
def test_a_key_is_in_the_partition_of_javas_producer(kafka: Kafka, topic: str, kind: str) -> None:
    settings = {"bootstrap.servers": kafka.bootstrap}
    message: dict[str, Any] = {"key": "key", "value": "value"}
    bolts = {
        "KafkaBolt": lambda: KafkaBolt(settings, topic, **message),
        "TransactionalKafkaBolt": lambda: TransactionalKafkaBolt(
            settings, topic, transactional_id=topic, **message
        ),
        "SoleWriterBolt": lambda: SoleWriterBolt(settings, topic, id="key", **message),
    }
    send(bolts[kind](), [Item(key) for key in keys()])
    assert partitions_of(kafka, topic) == {key: java_partition(key) for key in keys()}


def test_a_dead_letter_is_in_the_partition_of_its_key(kafka: Kafka, topic: str) -> None:
    bolt = KafkaBolt.dead_letters({"bootstrap.servers": kafka.bootstrap}, topic)
    letters = [
        DeadLetter(f"id-{number}", {}, "in", 1, "failed", "out", 0, 0, "", "", "")
        for number in range(20)
    ]
    send(bolt, letters)
    partitions = partitions_of(kafka, topic)
    assert len(partitions) == len(letters)
    assert partitions == {key: java_partition(key or b"") for key in partitions}


def test_a_message_that_is_sent_alone_is_in_the_partition_of_its_key(
    kafka: Kafka, topic: str
) -> None:
    bolt = KafkaBolt({"bootstrap.servers": kafka.bootstrap}, topic, key="key", value="value")
    rig = BoltRig(bolt)
    bolt._alone = {*range(len(keys()))}
    rig.take(*(Item(key) for key in keys()))
    rig.until(lambda out: len(out.acked) == len(keys()))
    bolt.cleanup()
    assert partitions_of(kafka, topic) == {key: java_partition(key) for key in keys()}


@pytest.mark.parametrize(
    "setting",
    [
        {"partitioner": "consistent_random"},
        {"topic.partitioner": "consistent_random"},
        {"default.topic.config": {"partitioner": "consistent_random"}},
    ],
)
def test_the_users_partitioner_is_used(kafka: Kafka, topic: str, setting: dict[str, Any]) -> None:
    settings = {"bootstrap.servers": kafka.bootstrap, **setting}
    with_keys = keys()[1:]
    send(KafkaBolt(settings, topic, key="key", value="value"), [Item(key) for key in with_keys])
    assert partitions_of(kafka, topic) == {key: crc32(key) % PARTITIONS for key in with_keys}


def test_messages_without_a_key_are_in_several_partitions(kafka: Kafka, topic: str) -> None:
    settings = {"bootstrap.servers": kafka.bootstrap, "sticky.partitioning.linger.ms": 0}
    send(KafkaBolt(settings, topic, value="value"), [Item(None) for _ in range(200)])
    assert len({message.partition() for message in read_all(kafka.bootstrap, topic)}) > 3
