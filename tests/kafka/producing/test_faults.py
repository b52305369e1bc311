"""Faults of a real Kafka under load: no existing message is lost, and at the end the lag is 0."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from sunshower import Retry
from sunshower.clock import SystemClock
from sunshower.dev.kafka import Kafka
from sunshower.errors import KafkaError
from sunshower.kafka.formats import Json
from sunshower.kafka.options import KafkaOptions
from sunshower.kafka.partitions.broker_offsets import lags
from sunshower.kafka.partitions.ports import Partition, total
from sunshower.kafka.producing.kafka_bolt import KafkaBolt
from sunshower.kafka.producing.producer import Message, Producer
from sunshower.kafka.spout import KafkaSpout
from sunshower.topologies.streams import Stream
from tests.kafka.stage import Run, running, topology
from tests.kafka.topics import WITHIN_S, admin, fill, new_topic, read_all

PATIENT = Retry(attempts=100, initial_s=0.05, max_s=0.5)


def reader(bootstrap: str, topic: str, **options: Any) -> KafkaSpout:
    """A spout whose group has the name of its topic."""
    quick = {"commit_s": 0.1, "refresh_s": 1.0}
    more = {name: options.pop(name) for name in ("value",) if name in options}
    return KafkaSpout(
        {"bootstrap.servers": bootstrap, "group.id": topic, "session.timeout.ms": 6000},
        topics=[topic],
        options=KafkaOptions(**quick | options),
        **more,
    )


def lag(bootstrap: str, topic: str) -> int:
    try:
        return total(lags({"bootstrap.servers": bootstrap}, topic, [topic]))
    except KafkaError:  # a broker is restarting
        return 1


def values(run: Run) -> Counter[bytes]:
    bolts = [task.bolt for task in run._bolts("seen") if task.bolt is not None]
    return Counter(record.value for bolt in bolts for record in bolt.records)


def numbered_values(first: int, end: int) -> list[bytes]:
    return [f"{number:06}".encode() for number in range(first, end)]


def send(bootstrap: str, topic: str, messages: list[bytes]) -> None:
    """Write messages to all partitions, by their hash."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in messages:
        assert producer.send(Message(topic, value, key=value))
    assert producer.flush(WITHIN_S) == 0


def wait_until_committed(run: Run, bootstrap: str, topic: str) -> None:
    """Wait until the group has committed all, looking twice a second."""
    look = every(0.5)
    run.until(lambda: next(look) and lag(bootstrap, topic) == 0)


def every(seconds: float) -> Iterator[bool]:
    clock = SystemClock()
    due_s = clock.now()
    while True:
        now = clock.now()
        due = now >= due_s
        due_s = now + seconds if due else due_s
        yield due


# ---- brokers ------------------------------------------------------------------------------------


DOWN_S = 5.0


def test_nothing_is_lost_if_the_only_broker_is_down_for_longer_than_the_timeouts(
    kafka: Kafka,
) -> None:
    """tests/kafka/test_example.py tests a shorter outage."""
    source, target = new_topic(kafka.bootstrap, 2), new_topic(kafka.bootstrap, 2)
    send(kafka.bootstrap, source, numbered_values(0, 20_000))
    settings = {"bootstrap.servers": kafka.bootstrap, "message.timeout.ms": 3000, "linger.ms": 1}
    out = KafkaBolt(settings, target, value="value")
    spout = reader(kafka.bootstrap, source, refresh_s=30)
    program = topology(spout, out, retry=PATIENT, message_timeout_s=4, spout_pending=500)
    with running(program) as run:
        bolt = run._bolts("seen")[0]
        run.until(lambda: bolt.stats().counts.acked > 2000)
        kafka.kill(1)
        try:
            end_s = run.clock.now() + DOWN_S
            run.until(lambda: run.clock.now() >= end_s)
        finally:
            kafka.restart(1)
        assert bolt.stats().counts.acked < 20_000, "it was killed in the middle"
        send(kafka.bootstrap, source, numbered_values(20_000, 21_000))
        wait_until_committed(run, kafka.bootstrap, source)
        (stats,) = (task for task in run.core.stats().tasks if task.component == "in")
        assert bolt.stats().counts.failed, "messages that were not delivered in time have failed"
    arrivals = Counter(message.value() for message in read_all(kafka.bootstrap, target))
    assert set(arrivals) == set(numbered_values(0, 21_000))
    assert arrivals.total() - 21_000 <= stats.counts.replayed


def test_nothing_is_lost_if_a_leader_is_killed_and_another_broker_takes_over(
    kafka_cluster: Kafka,
) -> None:
    bootstrap = kafka_cluster.bootstrap
    topic = new_topic(bootstrap, 2)
    send(bootstrap, topic, numbered_values(0, 500))
    with running(topology(reader(bootstrap, topic))) as run:
        run.until(lambda: len(values(run)) == 500)
        partitions = admin(bootstrap).list_topics(topic, timeout=WITHIN_S).topics[topic].partitions
        leader = partitions[0].leader
        kafka_cluster.kill(leader)
        try:
            send(bootstrap, topic, numbered_values(500, 1000))
            run.until(lambda: len(values(run)) == 1000)
        finally:
            kafka_cluster.restart(leader)
        wait_until_committed(run, bootstrap, topic)
        assert set(values(run)) == set(numbered_values(0, 1000))


# ---- messages -----------------------------------------------------------------------------------


def test_a_compacted_topic_is_read_across_its_gaps(kafka: Kafka) -> None:
    settings = {
        "cleanup_policy": "compact",
        "segment_ms": "100",
        "min_cleanable_dirty_ratio": "0.01",
        "max_compaction_lag_ms": "100",
    }
    topic = new_topic(kafka.bootstrap, **settings)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    clock = SystemClock()
    end_s = clock.now() + WITHIN_S
    count = 0
    while True:  # until the log cleaner has run; it does not clean the last segment
        for _ in range(50):
            producer.send(Message(topic, f"{count}".encode(), key=f"{count % 5}".encode()))
            count += 1
        assert producer.flush(WITHIN_S) == 0
        clock.sleep(0.5)
        left = [message.offset() for message in read_all(kafka.bootstrap, topic)]
        if len(left) < count - 40:
            break
        assert clock.now() < end_s, "the log cleaner has not run"
    with running(topology(reader(kafka.bootstrap, topic))) as run:
        wait_until_committed(run, kafka.bootstrap, topic)
        newest = {f"{number}".encode() for number in range(count - 5, count)}
        assert newest <= set(values(run))
        assert run.contiguous() == {f"{topic}[0]": count}


class Sale(NamedTuple):
    item: str


def test_a_message_that_cannot_be_read_is_a_dead_letter_with_its_place_and_bytes(
    kafka: Kafka,
) -> None:
    topic, dead = new_topic(kafka.bootstrap), new_topic(kafka.bootstrap)
    fill(kafka.bootstrap, topic, [b'{"item": "tea"}', b"\xff not JSON", b'{"item": "milk"}'])
    spout = reader(kafka.bootstrap, topic, value=Json(Sale))
    program = topology(spout, retry=Retry(dead_letters=True))
    write_letters = KafkaBolt.dead_letters({"bootstrap.servers": kafka.bootstrap}, dead)
    Stream[Any](program, "in", "dead_letters").shuffle().bolt("dead", write_letters)
    with running(program) as run:
        wait_until_committed(run, kafka.bootstrap, topic)
        assert run.records() == [Sale("tea"), Sale("milk")]
        assert run.spout().result()["unreadable"] == 1
    (message,) = read_all(kafka.bootstrap, dead)
    assert json.loads(message.key() or b"")[:3] == [topic, 0, 1]
    topic_id = json.loads(message.key() or b"")[3]
    letter = json.loads(message.value() or b"")
    record = letter["record"]
    assert (record["topic"], record["partition"], record["offset"]) == (topic, 0, 1)
    assert record["value"] == repr(b"\xff not JSON")
    assert dict(message.headers() or ()) == {
        "spout": b"in",
        "cause": b"exception",
        "component": b"in",
        "reason": letter["reason"].encode(),
        "exception": b"UnreadableRecord",
        "attempts": b"1",
        "topic": topic.encode(),
        "partition": b"0",
        "offset": b"1",
        "topic_id": topic_id.encode(),
    }


def test_a_due_commit_blocks_no_step_while_the_broker_is_down(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap)
    fill(kafka.bootstrap, topic, numbered_values(0, 40))
    spout = reader(kafka.bootstrap, topic, refresh_s=1000.0)
    with running(topology(spout)) as run:
        run.until(lambda: len(run.records()) == 40)
        run.until(lambda: lag(kafka.bootstrap, topic) == 0)
        fill(kafka.bootstrap, topic, numbered_values(40, 60))
        run.until(lambda: len(run.records()) == 60)  # a later step begins their commit
        kafka.kill(1)
        try:
            clock = SystemClock()
            end_s = clock.now() + 60.0
            for _ in range(300):
                run.core.step()
                clock.sleep(0.01)
            assert clock.now() < end_s, "30 commits that were due have each taken seconds"
            committed = run.spout().standing()[Partition(topic, 0)].committed
            assert committed in range(40, 60), "the commit is due"
        finally:
            kafka.restart(1)
        run.until(lambda: lag(kafka.bootstrap, topic) == 0)
        assert set(values(run)) == set(numbered_values(0, 60))
