"""The lag of a consumer group: the figures of a spout, and the command `sunshower kafka lag`."""

from __future__ import annotations

import json
from math import isnan
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka import KafkaError as ClientError

from sunshower import Retry
from sunshower.clock import ManualClock
from sunshower.dev.kafka import Kafka
from sunshower.dev.servers import Ports
from sunshower.errors import KafkaUnreachable, NotAuthorised
from sunshower.kafka import KafkaOpaque, KafkaRanges, KafkaTransactional
from sunshower.kafka.partitions import broker_offsets
from sunshower.kafka.partitions.ports import Lag, Partition, PartitionStatus, figures
from sunshower.kafka.spout import KafkaSpout
from sunshower.runtime.tasks.spouts import log_source
from tests.conftest import Sunshower
from tests.kafka.fakes import NewBatchRig, NewSpoutRig
from tests.kafka.stage import Run, Seen, running, topology
from tests.kafka.topics import WITHIN_S, admin, fill, new_topic, read_all

WORDS = Partition("words", 0)


@pytest.mark.parametrize(
    ("committed", "begin", "end", "lag", "removed"),
    [
        (None, 0, 10, 10, 0),
        (None, 4, 10, 6, 0),
        (7, 0, 10, 3, 0),
        (10, 0, 10, 0, 0),
        (3, 5, 10, 5, 2),  # retention has removed unread messages
        (12, 0, 10, 0, 0),  # the topic was created again, and is shorter
    ],
)
def test_lag_counts_the_unread_messages_that_still_exist(
    committed: int | None, begin: int, end: int, lag: int, removed: int
) -> None:
    words_lag = Lag(WORDS, committed, begin, end)
    assert (words_lag.lag, words_lag.removed) == (lag, removed)


def test_figures_are_sums_with_the_details_of_each_partition() -> None:
    shown = figures(
        {
            WORDS: PartitionStatus(
                committed=5, contiguous=6, emitted=9, end=20, holes=1, paused=True
            ),
            Partition("words", 1): PartitionStatus(contiguous=2, emitted=4, waiting=2),
        }
    )
    assert shown["lag"] == 14 + 2
    assert (shown["holes"], shown["waiting"], shown["paused"]) == (1, 2, 1)
    assert shown["words[0]/committed"] == 5
    assert shown["words[0]/lag"] == 14
    assert "words[1]/committed" not in shown


def test_a_spout_that_catches_up_reports_the_end_and_the_messages_waiting_for_a_retry(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        log_source, "_POLL_S", 0.01
    )  # a spout backs off after 64 polls without room
    topic = new_topic(kafka.bootstrap)
    fill(kafka.bootstrap, topic, [b"x"] * 500)
    program = topology(
        KafkaSpout({"bootstrap.servers": kafka.bootstrap, "group.id": topic}, topics=[topic]),
        Seen(lambda _: True),
        retry=Retry(attempts=1_000_000, initial_s=60.0, max_s=60.0, jitter=0.0),
        spout_pending=20,
    )
    with running(program) as run:
        run.until(lambda: status_of(run, topic).waiting == 20 and status_of(run, topic).paused)
        assert status_of(run, topic).end == 500
        shown = run.spout().figures()
        assert (shown["lag"], shown["waiting"], shown["paused"]) == (500, 20, 1)


def status_of(run: Run, topic: str) -> PartitionStatus:
    spout = run.spout()
    return (
        PartitionStatus()
        if spout is None
        else spout.standing().get(Partition(topic, 0), PartitionStatus())
    )


def commit(bootstrap: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    partitions = [TopicPartition(topic, number, at) for number, at in offsets.items()]
    consumer.commit(offsets=partitions, asynchronous=False)
    consumer.close()


def test_the_command_shows_the_lag_of_a_group(
    kafka: Kafka, sunshower: Sunshower, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = new_topic(kafka.bootstrap, 3)
    group = f"group-{topic}"
    fill(kafka.bootstrap, topic, [b"x"] * 10, partition=0)
    fill(kafka.bootstrap, topic, [b"x"] * 5, partition=1)
    commit(kafka.bootstrap, group, topic, {0: 4, 1: 1})
    client = admin(kafka.bootstrap)
    removed = client.delete_records([TopicPartition(topic, 1, 3)])
    for done in removed.values():
        done.result(WITHIN_S)
    command = ("kafka", "lag", group, "--bootstrap", kafka.bootstrap)
    assert sunshower(*command, "--json") == 0
    shown = json.loads(capfd.readouterr().out)
    assert shown["lag"] == 6 + 2
    rows = {row["number"]: row for row in shown["partitions"]}
    assert {(n, row["committed"], row["lag"], row["removed"]) for n, row in rows.items()} == {
        (0, 4, 6, 0),
        (1, 1, 2, 2),
    }
    assert sunshower(*command, "--topic", topic) == 0
    table = capfd.readouterr().out
    assert f"group {group}  ·  lag 8" in table
    assert f"{topic}[2]" in table  # a partition without a committed offset


def test_the_command_shows_the_last_stable_offset_of_an_open_transaction(
    kafka: Kafka, sunshower: Sunshower, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = new_topic(kafka.bootstrap)
    fill(kafka.bootstrap, topic, [b"x"] * 5)
    writer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    writer.init_transactions(WITHIN_S)
    writer.begin_transaction()
    for _ in range(3):
        writer.produce(topic, b"y")
    writer.flush(WITHIN_S)
    command = ("kafka", "lag", "none", "--bootstrap", kafka.bootstrap, "--topic", topic)
    assert sunshower(*command, "--json") == 0
    (row,) = json.loads(capfd.readouterr().out)["partitions"]
    assert (row["last_stable"], row["end"], row["lag"]) == (5, 8, 8)
    assert sunshower(*command) == 0
    assert "last stable" in capfd.readouterr().out
    writer.commit_transaction(WITHIN_S)
    assert len(read_all(kafka.bootstrap, topic)) == 8  # it returns when the transaction has ended
    assert sunshower(*command, "--json") == 0
    (row,) = json.loads(capfd.readouterr().out)["partitions"]
    assert (row["last_stable"], row["end"]) == (9, 9)


class SilentConsumer:
    """A consumer whose requests time out. `waits`: the time-outs that it was given."""

    waits: ClassVar[list[float]] = []

    def __init__(self, _: Any) -> None: ...

    def committed(self, asked: Any, within_s: float) -> Any:
        self.waits.append(within_s)
        raise KafkaException(ClientError(ClientError._TIMED_OUT))

    offsets_for_times = committed

    def close(self) -> None: ...


def test_brokers_that_do_not_answer_are_kafka_unreachable_within_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("confluent_kafka.Consumer", SilentConsumer)
    monkeypatch.setattr(broker_offsets, "_wanted", lambda *_: {WORDS})
    monkeypatch.setattr(broker_offsets, "WITHIN_S", 0.05)
    with pytest.raises(KafkaUnreachable, match="does not answer for group 'words'"):
        broker_offsets.lags({"bootstrap.servers": "nowhere:1"}, "words", ["words"])
    monkeypatch.setattr(broker_offsets, "read_committed", lambda *_: ({}, []))
    with pytest.raises(KafkaUnreachable, match="the ends of partitions"):
        broker_offsets.lags({"bootstrap.servers": "nowhere:1"}, "words", ["words"])
    assert all(0 < wait_s <= 0.05 for wait_s in SilentConsumer.waits)


def test_an_error_for_one_partition_is_raised_as_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(SilentConsumer):
        def committed(self, asked: Any, within_s: float) -> Any:
            return [SimpleNamespace(error=ClientError(ClientError.GROUP_AUTHORIZATION_FAILED))]

    monkeypatch.setattr("confluent_kafka.Consumer", Refused)
    monkeypatch.setattr(broker_offsets, "_wanted", lambda *_: {WORDS})
    with pytest.raises(NotAuthorised, match="group 'words'"):
        broker_offsets.lags({"bootstrap.servers": "nowhere:1"}, "words", ["words"])


def test_all_requests_share_one_deadline() -> None:
    clock = ManualClock()
    left = broker_offsets._until(8.0, clock)
    clock.advance(6.0)
    assert left() == 2.0
    clock.advance(6.0)
    assert 0 < left() < 0.1


def test_the_command_reports_wrong_arguments(
    kafka: Kafka,
    sunshower: Sunshower,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ports = Ports()
    unreachable = f"127.0.0.1:{ports.claim()}"
    here = ("--bootstrap", kafka.bootstrap)
    for arguments, expected in (
        (("no-such-group", *here), "no-such-group"),
        (("words", *here, "--topic", "no-such-topic"), "no-such-topic"),
        (("words", *here, "--set", "linger"), "--set linger=…"),
        (("words", "--bootstrap", unreachable), unreachable),
    ):
        if unreachable in arguments:
            monkeypatch.setattr(broker_offsets, "WITHIN_S", 0.5)
        assert sunshower("kafka", "lag", *arguments) == 1
        assert expected in capfd.readouterr().err
    ports.release()


@pytest.mark.parametrize("kind", [KafkaTransactional, KafkaOpaque, KafkaRanges])
def test_the_lag_of_batches_is_unknown_until_brokers_have_answered_and_while_they_are_down(
    kind: Any, new_batch_rig: NewBatchRig
) -> None:
    rig = new_batch_rig(kind, (0, 250), seconds=1.0)
    assert isnan(rig.spout.figures()["lag"]), "a process that has just started"
    rig.batch(p0=None)
    known = rig.spout.figures()["lag"]
    assert known >= 0
    rig.client.is_cut = True
    assert isnan(rig.spout.figures()["lag"])
    rig.client.is_cut = False
    assert rig.spout.figures()["lag"] == known


def test_a_task_without_partitions_has_no_lag_once_a_batch_is_committed(
    new_batch_rig: NewBatchRig,
) -> None:
    rig = new_batch_rig(KafkaOpaque, seconds=1.0)
    rig.batch()
    assert isnan(rig.spout.figures()["lag"])
    rig.spout.committed({})
    assert rig.spout.figures()["lag"] == 0


def test_the_lag_of_a_spout_is_unknown_while_all_brokers_are_down(
    new_spout_rig: NewSpoutRig,
) -> None:
    rig = new_spout_rig((0, 10))
    rig.open()
    rig.poll()
    assert rig.spout.figures()["lag"] >= 0
    rig.client.is_cut = True
    assert isnan(rig.spout.figures()["lag"])
