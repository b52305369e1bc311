"""KafkaSpout on a real broker: what it reads and commits, and what it does with bad records."""

from __future__ import annotations

import json
import uuid
from contextlib import closing
from threading import Event
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from sunshower import OnStream, Retry
from sunshower.dev.kafka import Kafka
from sunshower.kafka.consuming.consumer import Consumer as OurConsumer
from sunshower.kafka.consuming.decoding import KafkaRecord, Received
from sunshower.kafka.consuming.start_position import StartPosition, StartTime
from sunshower.kafka.formats import Text
from sunshower.kafka.options import Guarantee, KafkaOptions
from sunshower.kafka.partitions.ports import Partition
from sunshower.kafka.spout import KafkaSpout
from tests.kafka.stage import Run, Seen, running, topology
from tests.kafka.topics import WITHIN_S, add_partitions, fill, new_topic, remove_before

LETTERS = Retry(attempts=2, initial_s=0.01, dead_letters=True)


class Order(NamedTuple):
    id: int
    what: str = "tea"


def settings(kafka: Kafka, **more: Any) -> dict[str, Any]:
    renamed = {name.replace("_", "."): value for name, value in more.items()}
    return {
        "bootstrap.servers": kafka.bootstrap,
        "group.id": f"g-{uuid.uuid4().hex[:8]}",
        **renamed,
    }


def spout(kafka: Kafka, topic: str, base: dict[str, Any] | None = None, **more: Any) -> KafkaSpout:
    options = more.pop("options", None) or KafkaOptions(commit_s=0.2)
    return KafkaSpout(base or settings(kafka), topics=[topic], options=options, **more)


def numbered_values(count: int, first: int = 0) -> list[bytes]:
    return [str(number).encode() for number in range(first, first + count)]


def values(run: Run) -> list[int]:
    return sorted(int(record.value) for record in run.records())


def committed(kafka: Kafka, base: dict[str, Any], topic: str, partition: int = 0) -> int:
    """The committed offset, as the brokers report it."""
    with closing(Consumer({**base, "enable.auto.commit": False})) as client:
        (position,) = client.committed([TopicPartition(topic, partition)], WITHIN_S)
    assert position.error is None
    return position.offset


def test_all_messages_are_read_and_committed(kafka: Kafka) -> None:
    topic, base = new_topic(kafka.bootstrap, 3), settings(kafka)
    for partition in range(3):
        fill(kafka.bootstrap, topic, numbered_values(500, partition * 500), partition)
    with running(topology(spout(kafka, topic, base), tasks=2)) as run:
        run.until(lambda: sum(run.contiguous().values()) == 1500)
        assert values(run) == list(range(1500))
        assert run.records()[0]._fields == KafkaRecord._fields
        run.until(lambda: committed(kafka, base, topic) == 500)
    assert [committed(kafka, base, topic, partition) for partition in range(3)] == [500] * 3


def test_a_message_wakes_a_spout_that_has_nothing_to_read(kafka: Kafka) -> None:
    topic, arrived = new_topic(kafka.bootstrap), Event()
    with closing(OurConsumer(settings(kafka))) as consumer:
        consumer.call_on_arrival(arrived.set)
        consumer.assign({Partition(topic, 0): 0})
        for number in range(3):
            while consumer.consume(10, 0.5):  # until it is at the end of the partition
                pass
            arrived.clear()
            fill(kafka.bootstrap, topic, numbered_values(1, number), 0)
            assert arrived.wait(WITHIN_S)
            assert [message.value() for message in consumer.consume(1, WITHIN_S)]


def test_a_restarted_spout_continues_at_the_committed_offset_and_skips_nothing(
    kafka: Kafka,
) -> None:
    topic, base = new_topic(kafka.bootstrap), settings(kafka)
    fill(kafka.bootstrap, topic, numbered_values(300))
    refuses = Seen(lambda record: int(record.value) == 120)
    program = topology(spout(kafka, topic, base), refuses, attempts_max=1_000_000)
    run = Run(program)
    run.until(lambda: committed(kafka, base, topic) == 120)
    run.core._wired.spouts.popitem()[1].spout._consumer.close()  # dies without a last commit
    with running(topology(spout(kafka, topic, base))) as again:
        again.until(lambda: again.contiguous() == {f"{topic}[0]": 300})
        assert values(again) == list(range(120, 300))


def test_a_start_position_applies_to_a_new_deployment_and_not_to_a_restart(kafka: Kafka) -> None:
    topic, base = new_topic(kafka.bootstrap), settings(kafka)
    fill(kafka.bootstrap, topic, numbered_values(10))
    options = KafkaOptions(commit_s=0.1, first=StartPosition.EARLIEST)

    def read(deployment: str, until: int) -> list[int]:
        reader = spout(kafka, topic, base, options=options, deployment=deployment)
        with running(topology(reader)) as run:
            run.until(lambda: run.contiguous() == {f"{topic}[0]": until})
            return values(run)

    assert read("one", 10) == list(range(10))
    fill(kafka.bootstrap, topic, numbered_values(5, 10))
    assert read("one", 15) == list(range(10, 15)), "the same deployment, started again"
    assert read("two", 15) == list(range(15)), "another deployment"


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (StartPosition.EARLIEST, [0, 1, 2, 3]),
        (StartPosition.LATEST, [3]),
        (StartTime(2_000), [1, 2, 3]),
        *(
            pytest.param(getattr(StartPosition, name), expected, marks=pytest.mark.long)
            for name, expected in {
                "UNCOMMITTED_EARLIEST": [0, 1, 2, 3],
                "UNCOMMITTED_LATEST": [3],
                "STORM": [3],
                "STORM_FORCED": [0, 1, 2, 3],
            }.items()
        ),
    ],
)
def test_where_a_spout_without_committed_offsets_begins(
    kafka: Kafka, first: Any, expected: list[int]
) -> None:
    topic = new_topic(kafka.bootstrap, retention_ms="-1")  # the timestamps are of 1970
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(3):
        producer.produce(topic, str(number), timestamp=1_000 + 1_000 * number)
    assert producer.flush(30) == 0
    reader = spout(kafka, topic, options=KafkaOptions(first=first))
    with running(topology(reader)) as run:
        run.until(run.contiguous)
        fill(kafka.bootstrap, topic, [b"3"])
        run.until(lambda: run.contiguous() == {f"{topic}[0]": 4})
        assert values(run) == expected


def test_a_translator_gets_the_whole_message_and_chooses_the_stream(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    headers: list[Any] = [("trace", b"7")]
    producer.produce(topic, "a", key="left", headers=headers, timestamp=1_234)
    producer.produce(topic, "b", key="right")
    producer.produce(topic, "c", key="none")
    producer.produce(topic, "d", key="broken")
    assert producer.flush(30) == 0

    def translate(message: Received) -> Any:
        if message.key == "left":
            return OnStream("left", message)
        if message.key == "broken":
            raise LookupError("no such way")
        return None if message.key == "none" else Order(message.offset, message.value)

    program = topology(
        spout(kafka, topic, key=Text(), value=Text(), translate=translate, emits=Order),
        retry=LETTERS,
        streams={"left": Received},
    )
    with running(program) as run:
        run.until(lambda: run.contiguous() == {f"{topic}[0]": 4})
        assert run.records() == [Order(1, "b")]
        (left,) = run.records("left")
        assert left[:-1] == (topic, 0, 0, "left", "a", 1_234, headers)
        assert len(left.topic_id) == 22
        assert [letter.reason for letter in run.records("letters")] == ["no such way"]


def test_an_offset_is_committed_when_all_records_of_its_message_are_processed(
    kafka: Kafka,
) -> None:
    topic, base = new_topic(kafka.bootstrap), settings(kafka)
    fill(kafka.bootstrap, topic, [b"0 1", b"2 3 4", b"", b"5"])
    refused = {3}

    def orders(message: Received) -> list[Order]:
        return [Order(int(number)) for number in message.value.split()]

    program = topology(
        spout(kafka, topic, base, translate=orders, emits=Order),
        Seen(lambda order: order.id in refused),
        retry=Retry(attempts=1_000_000, initial_s=0.01),
    )
    with running(program) as run:
        run.until(lambda: {order.id for order in run.records()} == {0, 1, 2, 4, 5})
        run.until(lambda: committed(kafka, base, topic) == 1)
        run.step_for(0.5)
        assert committed(kafka, base, topic) == 1, "one record of the next message is open"
        refused.clear()
        run.until(lambda: committed(kafka, base, topic) == 4)
        assert {order.id for order in run.records()} == {*range(6)}


@pytest.mark.parametrize("guarantee", [Guarantee.AT_MOST_ONCE, Guarantee.NONE])
def test_failed_messages_are_not_repeated_without_that_guarantee(
    kafka: Kafka, guarantee: Guarantee
) -> None:
    topic, base = new_topic(kafka.bootstrap), settings(kafka)
    fill(kafka.bootstrap, topic, [*numbered_values(20), b"x"])
    lead: list[int] = []

    def refuses(record: KafkaRecord) -> bool:
        if guarantee is Guarantee.AT_MOST_ONCE:
            lead.append(committed(kafka, base, topic) - record.offset)
        return record.offset == 3

    options = KafkaOptions(guarantee=guarantee, commit_s=0.1)
    reader = spout(kafka, topic, base, options=options)
    with running(topology(reader, Seen(refuses))) as run:
        run.until(lambda: len(run.records()) == 20)
        run.until(lambda: committed(kafka, base, topic) == 21)
        assert sorted(record.offset for record in run.records()) == [
            offset for offset in range(21) if offset != 3
        ]
    assert all(ahead > 0 for ahead in lead), "committed before it was emitted"


def test_a_partition_with_too_many_uncommitted_messages_is_paused(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap, 2)
    for partition in range(2):
        fill(kafka.bootstrap, topic, numbered_values(5_000), partition)
    stuck = [True]
    refuses = Seen(lambda record: stuck[0] and (record.partition, record.offset) == (0, 5))
    options = KafkaOptions(uncommitted_max=1_000, commit_s=0.1)
    program = topology(
        spout(kafka, topic, options=options),
        refuses,
        retry=Retry(attempts=1_000_000, initial_s=0.05, max_s=0.05),
        spout_pending=300,
    )
    with running(program) as run:
        run.until(run.contiguous)  # the spout is open
        run.until(lambda: run.spout().standing()[Partition(topic, 0)].emitted >= 1_005)
        fill(kafka.bootstrap, topic, numbered_values(1_000), 1)
        run.until(lambda: run.contiguous()[f"{topic}[1]"] == 6_000)
        standing = run.spout().standing()[Partition(topic, 0)]
        assert standing.paused
        assert 1_005 <= standing.emitted <= 1_305, "the limit is exceeded by one batch at most"
        assert (standing.contiguous, standing.holes) == (5, 1)
        stuck[0] = False
        run.until(lambda: run.contiguous() == {f"{topic}[0]": 5_000, f"{topic}[1]": 6_000})


def test_new_partitions_and_new_topics_that_match_the_pattern_are_read(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap)
    fill(kafka.bootstrap, topic, [b"old"])
    options = KafkaOptions(refresh_s=0.5, commit_s=0.1, first=StartPosition.LATEST)
    reader = KafkaSpout(settings(kafka), pattern=f"{topic}.*", options=options)
    with running(topology(reader)) as run:
        run.until(run.contiguous)
        fill(kafka.bootstrap, topic, [b"0"])
        run.until(lambda: len(run.records()) == 1)
        add_partitions(kafka.bootstrap, topic, 3)
        fill(kafka.bootstrap, topic, [b"1"], 2)
        other = new_topic(kafka.bootstrap, name=f"{topic}-more")
        fill(kafka.bootstrap, other, [b"2"])
        run.until(lambda: values(run) == [0, 1, 2])


def test_transaction_markers_are_settled_and_aborted_messages_are_not_read(kafka: Kafka) -> None:
    topic, base = new_topic(kafka.bootstrap), settings(kafka)
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "transactional.id": uuid.uuid4().hex}
    )
    producer.init_transactions(30)
    for end, names in ((producer.commit_transaction, "ab"), (producer.abort_transaction, "cd")):
        producer.begin_transaction()
        for name in names:
            producer.produce(topic, name)
        producer.flush(60)
        end(60)
    with running(topology(spout(kafka, topic, base))) as run:
        run.until(lambda: committed(kafka, base, topic) == 6)
        assert [record.value for record in run.records()] == [b"a", b"b"]


def test_messages_removed_before_they_were_read_are_skipped_and_reported(kafka: Kafka) -> None:
    topic, base = new_topic(kafka.bootstrap), settings(kafka)
    fill(kafka.bootstrap, topic, numbered_values(10))
    with running(topology(spout(kafka, topic, base))) as run:
        run.until(lambda: committed(kafka, base, topic) == 10)
    fill(kafka.bootstrap, topic, numbered_values(30, 10))
    remove_before(kafka.bootstrap, topic, 25)
    with running(topology(spout(kafka, topic, base), retry=LETTERS)) as run:
        run.until(lambda: committed(kafka, base, topic) == 40)
        assert values(run) == list(range(25, 40))
        (letter,) = run.records("letters")
        assert letter.record == {"topic": topic, "partition": 0, "from": 10, "to": 24}
        assert run.spout().skipped_count == 15


def test_a_spout_at_its_pending_limit_stays_in_its_group(kafka: Kafka) -> None:
    from sunshower.kafka.options import by_broker_group

    topic = new_topic(kafka.bootstrap)
    fill(kafka.bootstrap, topic, numbered_values(500))
    # A poll is due within this time; of 30 heartbeats one has to arrive, also on a busy machine.
    limits = {"max_poll_interval_ms": 6_000, "session_timeout_ms": 6_000}
    base = settings(kafka, heartbeat_interval_ms=200, **limits)
    held: list[Any] = [True]
    options = KafkaOptions(sharing=by_broker_group, commit_s=0.1)
    program = topology(
        spout(kafka, topic, base, options=options),
        Seen(lambda _: held[0]),
        retry=Retry(attempts=1_000_000, initial_s=9.0, max_s=9.0, jitter=0.0),
        spout_pending=20,
    )
    with running(program) as run:
        run.until(lambda: run.contiguous() == {f"{topic}[0]": 0})
        place = run.spout()._reader.places[Partition(topic, 0)]
        run.step_for(8.0)
        assert run.spout()._reader.places.get(place.partition) is place, "it left the group"
        held[0] = False
        run.until(lambda: run.contiguous() == {f"{topic}[0]": 500})
    assert committed(kafka, base, topic) == 500


def test_the_metadata_of_a_commit_name_the_deployment(kafka: Kafka) -> None:
    topic, base = new_topic(kafka.bootstrap), settings(kafka)
    fill(kafka.bootstrap, topic, numbered_values(3))
    with running(topology(spout(kafka, topic, base, deployment="d7"))) as run:
        run.until(lambda: run.contiguous() == {f"{topic}[0]": 3})
        stored = run.spout()._reader.committer.written
        run.until(lambda: stored.get(Partition(topic, 0), (0,))[0] == 3)
        assert json.loads(stored[Partition(topic, 0)].metadata)["topologyId"] == "kafka-d7"
