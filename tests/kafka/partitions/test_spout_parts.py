"""KafkaSpout over a fake client: errors between a poll of the client and the records it emits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from random import Random
from typing import Any, cast

import numpy as np
import pytest
from confluent_kafka import Message

from sunshower.clock import ManualClock
from sunshower.errors import BadOffset, KafkaUnreachable, NotAuthorised, StaleGeneration
from sunshower.kafka.consuming.decoding import MessageBatch, Received
from sunshower.kafka.consuming.start_position import StartPosition
from sunshower.kafka.options import Guarantee, Interceptor
from sunshower.kafka.partitions.ports import (
    Committed,
    Partition,
    RebalanceListener,
)
from sunshower.kafka.zookeeper.group import ZooKeeperGroup
from sunshower.state.tree import MemoryForest
from tests.kafka.fakes import (
    EOF,
    FORBIDDEN,
    RESET,
    AtOnce,
    FakeOffsets,
    NewSpoutRig,
    SpoutRig,
    message,
)
from tests.kafka.groups import FaultyConnection, Topics, raises


def test_a_skipped_range_is_reported_also_after_an_error(new_spout_rig: NewSpoutRig) -> None:
    rig = new_spout_rig((10, 100), offsets=FakeOffsets(p0=3))
    rig.open()
    rig.client.waiting = [message(3, error=RESET)]
    rig.poll()
    rig.client.waiting = [message(0, 7, error=FORBIDDEN, topic="b"), message(10)]
    with pytest.raises(NotAuthorised):
        rig.spout.poll(100)
    polled = rig.spout.poll(100)
    assert polled is not None
    assert [unreadable_record.record["to"] for unreadable_record in polled.unreadable] == [9]
    assert [*polled.records] == [(0, 10)]
    assert rig.spout.skipped_count == 7


def test_a_commit_that_raises_loses_no_message(
    new_spout_rig: NewSpoutRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = new_spout_rig((0, 100))
    rig.open()
    rig.client.waiting = [message(0)]
    assert rig.poll() == [(0, 0)]
    rig.spout.acked(np.array([rig.spout._reader.places[Partition("a", 0)].number(0)]))
    begin = rig.spout._reader.committer.begin
    monkeypatch.setattr(rig.spout._reader.committer, "begin", raises(RuntimeError("odd")))
    rig.client.waiting = [message(1)]
    rig.clock.advance(2.0)
    with pytest.raises(RuntimeError, match="odd"):
        rig.spout.poll(100)
    monkeypatch.setattr(rig.spout._reader.committer, "begin", begin)
    assert rig.poll() == [(0, 1)]


def test_a_spout_that_cannot_open_its_offsets_leaves_its_group(
    new_spout_rig: NewSpoutRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics, connections = Topics(a=1), [FaultyConnection(MemoryForest())]
    closed: list[bool] = []
    monkeypatch.setattr(connections[0].tree, "close", lambda: closed.append(True))
    group: Any = ZooKeeperGroup(connections[0], "g", ["a"], topics, ManualClock(), Random(1))
    rig = new_spout_rig(
        (0, 100),
        sharing=lambda _: group,
        store=raises(KafkaUnreachable("no offsets")),
    )
    with pytest.raises(KafkaUnreachable, match="no offsets"):
        rig.open()
    assert closed
    assert rig.client.closed


class Unanswered(FakeOffsets):
    """Offsets of a broker that does not answer: commits that are started stay unanswered, and one
    that is waited for would block the client."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[tuple[int, Future[None]]] = []

    def write_soon(self, offsets: Mapping[Partition, Committed]) -> Future[None]:
        (committed,) = offsets.values()
        self.started.append((committed.offset, Future()))
        return self.started[-1][1]

    def write(self, offsets: Mapping[Partition, Committed]) -> None:
        pytest.fail(f"{offsets} block the client")


@pytest.mark.parametrize("end", ["deactivate", "close", "revoked"])
def test_a_commit_without_an_answer_blocks_neither_the_client_nor_the_last_commit(
    new_spout_rig: NewSpoutRig, end: str
) -> None:
    offsets = Unanswered()
    rig = new_spout_rig((0, 100), offsets=offsets)
    rig.open()
    here = Partition("a", 0)
    reader = rig.spout._reader
    for offset in range(2):
        rig.client.waiting = [message(offset)]
        rig.clock.advance(2.0)
        assert rig.poll() == [(0, offset)]
        rig.spout.acked(np.array([reader.places[here].number(offset)]))
        rig.clock.advance(2.0)
        rig.poll()
    assert [offset for offset, _ in offsets.started] == [0], "one at a time"
    if end == "revoked":
        reader.revoked([here], lost=False)
    else:
        getattr(rig.spout, end)()
    assert offsets.started[-1][0] == 2
    for _, written in offsets.started:
        written.set_result(None)
    reader.committer.begin({})
    stored = reader.committer.written.get(here)
    assert (stored and stored.offset) == (2 if end == "deactivate" else None), (
        "of what it still has"
    )


def test_client_and_offsets_are_closed_also_if_the_last_commit_raises(
    new_spout_rig: NewSpoutRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = new_spout_rig((0, 100))
    rig.open()
    monkeypatch.setattr(rig.spout._reader, "send_commit", raises(RuntimeError("odd")))
    with pytest.raises(RuntimeError, match="odd"):
        rig.spout.close()
    assert rig.client.closed
    assert rig.offsets.closed


def test_at_most_once_messages_that_cannot_be_committed_wait_and_are_not_lost(
    new_spout_rig: NewSpoutRig,
) -> None:
    rig = new_spout_rig((0, 9), (0, 9), guarantee=Guarantee.AT_MOST_ONCE, commit_s=1.0)
    rig.open()
    rig.offsets.write_error = KafkaUnreachable("no coordinator")
    rig.client.waiting = [message(0), message(2), message(0, 1), message(4, 1, error=EOF)]
    for _ in range(3):
        assert not rig.poll()
        rig.clock.advance(0.4)
    assert rig.spout.standing()[Partition("a", 0)].emitted == 0
    rig.client.waiting.append(message(3))
    rig.offsets.write_error = None
    rig.clock.advance(1.0)
    assert rig.poll() == [(0, 0), (0, 2), (1, 0)]
    assert (rig.offsets.at(0), rig.offsets.at(1)) == (3, 4)
    assert rig.poll() == [(0, 3)]


def test_at_most_once_waiting_messages_of_a_revoked_partition_are_not_emitted(
    new_spout_rig: NewSpoutRig,
) -> None:
    rig = new_spout_rig((0, 9), (0, 9), guarantee=Guarantee.AT_MOST_ONCE, commit_s=1.0)
    rig.open()
    rig.offsets.write_error = KafkaUnreachable("no coordinator")
    rig.client.waiting = [message(0), message(0, 1)]
    assert not rig.poll()
    rig.offsets.write_error = None
    rig.spout._reader.revoked([Partition("a", 0)], lost=False)
    assert rig.offsets.at(0) in (None, 0)
    rig.clock.advance(1.0)
    assert rig.poll() == [(1, 0)]


def test_after_a_read_error_partitions_are_looked_up_at_once(
    new_spout_rig: NewSpoutRig,
) -> None:
    rig = new_spout_rig((0, 9), refresh_s=60.0)
    rig.open()
    rig.topics.counts["a"] = 2
    rig.client.bounds_of[Partition("a", 1)] = (0, 9)
    rig.poll()
    assert len(rig.spout.standing()) == 1, "it is not time to refresh yet"
    rig.client.waiting = [message(0, error=FORBIDDEN)]
    with pytest.raises(NotAuthorised):
        rig.poll()
    rig.poll()
    assert len(rig.spout.standing()) == 2


class RecordingListener(RebalanceListener):
    """Records each call, with the committed offset and the number of partitions that are read."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int], int | None, int]] = []
        self.rig: Any = None
        self.fails = False

    def assigned(self, partitions: Collection[Partition]) -> None:
        self._note("assigned", partitions)

    def revoked(self, partitions: Collection[Partition], *, lost: bool) -> None:
        self._note("lost" if lost else "revoked", partitions)

    def _note(self, what: str, partitions: Collection[Partition]) -> None:
        numbers = sorted(partition.number for partition in partitions)
        self.calls.append((what, numbers, self.rig.offsets.at(0), len(self.rig.client.reads)))
        if self.fails:
            raise RuntimeError("not now")


def test_a_listener_is_called_before_the_first_record_and_after_the_last_commit(
    new_spout_rig: NewSpoutRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = RecordingListener()
    rig = new_spout_rig((0, 9), listener=listener)
    listener.rig, listener.fails = rig, True
    with pytest.raises(RuntimeError, match="not now"):
        rig.open()
    assert not rig.client.reads
    listener.fails = False
    rig.open()
    rig.client.waiting = [message(0)]
    assert rig.poll() == [(0, 0)]
    rig.spout.acked(np.array([rig.spout._reader.places[Partition("a", 0)].number(0)]))
    rig.spout.close()
    assert listener.calls[1:] == [("assigned", [0], None, 0), ("revoked", [0], 1, 0)]


class Witness(Interceptor):
    """Records each call; raises as long as `fails`."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, bytes, str]] = []
        self.commits: list[dict[int, int]] = []
        self.fails = False

    def __deepcopy__(self, memo: object) -> Witness:
        return self

    def on_consume(self, messages: Sequence[Received]) -> None:
        self.seen += [(message.offset, message.value, message.topic_id) for message in messages]
        if self.fails:
            raise RuntimeError("the interceptor is broken")

    def on_commit(self, offsets: Mapping[Partition, Committed]) -> None:
        self.commits.append({partition.number: at.offset for partition, at in offsets.items()})
        cast("dict[Partition, Committed]", offsets).clear()  # only this mapping is changed
        if self.fails:
            raise RuntimeError("the interceptor is broken")


def ack(rig: SpoutRig, offset: int) -> None:
    place = rig.spout._reader.places[Partition("a", 0)]
    rig.spout.acked(np.array([place.number(offset)]))


@pytest.mark.parametrize("fails", [False, True])
def test_an_interceptor_sees_what_is_read_and_what_any_store_has_committed(
    new_spout_rig: NewSpoutRig,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fails: bool,
) -> None:
    """Kafka: org/apache/kafka/clients/consumer/internals/ConsumerInterceptors.java."""
    monkeypatch.setattr("sunshower.kafka.consuming.partition_reader.ThreadPoolExecutor", AtOnce)
    witness = Witness()
    rig = new_spout_rig((0, 9), interceptor=witness)
    rig.topics.ids["a"] = "id-1"
    rig.open()
    witness.fails = fails
    rig.client.waiting = [message(0, value=b"x"), message(1, value=b"y")]
    assert rig.poll() == [(0, 0), (0, 1)]
    assert witness.seen == [(0, b"x", "id-1"), (1, b"y", "id-1")]
    ack(rig, 0)
    assert witness.commits == [], "an ack is no commit"
    for _ in range(4):
        rig.clock.advance(0.5)
        rig.poll()
    assert witness.commits == [{0: 1}]
    rig.offsets.write_error = StaleGeneration("another owner")
    ack(rig, 1)
    rig.clock.advance(1.0)
    for _ in range(2):
        rig.poll()
    assert witness.commits == [{0: 1}], "nothing was stored"
    rig.offsets.write_error = None
    rig.spout.close()
    assert witness.commits == [{0: 1}, {0: 2}], "the last commit counts, too"
    broken = [r for r in caplog.records if "has failed, and reading goes on" in r.getMessage()]
    assert len(broken) == (3 if fails else 0)


class Adds(Interceptor):
    """Adds a header to each message, as is usual in Kafka."""

    def on_consume(self, messages: Sequence[Received]) -> None:
        for received in messages:
            cast("list[Any]", received.headers).append(("trace", b"1"))


def test_an_interceptor_does_not_change_the_headers_that_are_emitted(
    new_spout_rig: NewSpoutRig,
) -> None:
    rig = new_spout_rig((0, 9), interceptor=Adds())
    rig.open()
    sent = Message(topic="a", partition=0, offset=0, value=b"x", headers=[("h", b"2")])
    rig.client.waiting = [sent]
    assert rig.poll() == [(0, 0)]
    assert sent.headers() == [("h", b"2")]


def test_a_message_that_waits_for_a_dependency_is_intercepted_once(
    new_spout_rig: NewSpoutRig,
) -> None:
    witness = Witness()
    rig = new_spout_rig((0, 9), interceptor=witness)
    rig.open()
    records, failing = rig.spout._translator.records, [True]

    def unavailable_once(batch: MessageBatch) -> Any:
        if failing:
            failing.pop()
            raise KafkaUnreachable("the registry is away")
        return records(batch)

    rig.spout._translator.records = unavailable_once  # type: ignore[method-assign]
    rig.client.waiting = [message(0)]
    with pytest.raises(KafkaUnreachable):
        rig.spout.poll(100)
    assert witness.seen == []
    assert rig.poll() == [(0, 0)]
    assert len(witness.seen) == 1


def test_each_change_of_the_partitions_of_a_task_is_one_line_of_the_log(
    new_spout_rig: NewSpoutRig, caplog: pytest.LogCaptureFixture
) -> None:
    """Storm: org/apache/storm/kafka/KafkaUtils.java (logPartitionMapping)."""

    def lines() -> list[str]:
        texts = [r.getMessage() for r in caplog.records if r.name == "sunshower.kafka.partitions"]
        caplog.clear()
        return texts

    rig = new_spout_rig((0, 9), (0, 9), refresh_s=10.0)
    rig.open()
    for _ in range(3):
        rig.poll()
    assert lines() == ["Task [1/1] of 'in' reads a[0], a[1]; new: a[0], a[1]; given up: none"]
    rig.topics.counts["a"] = 1
    rig.clock.advance(11.0)
    rig.poll()
    rig.poll()
    assert lines() == ["Task [1/1] of 'in' reads a[0]; new: none; given up: a[1]"]
    rig.spout.close()


def test_the_error_for_a_missing_offset_says_what_to_do(new_spout_rig: NewSpoutRig) -> None:
    rig = new_spout_rig((10, 100), first=StartPosition.NONE)
    with pytest.raises(BadOffset, match=r"a\[0\]: no offset is committed.* from 10 up to 100"):
        rig.open()
    rig = new_spout_rig((10, 100), first=StartPosition.NONE, offsets=FakeOffsets(p0=20))
    rig.open()
    assert rig.client.reads == {Partition("a", 0): 20}
    rig.client.waiting = [message(20, error=RESET)]
    rig.client.bounds_of[Partition("a", 0)] = (50, 100)
    rig.poll()
    for _ in range(2):  # the spout does not continue without a decision of the user
        with pytest.raises(BadOffset, match=r"a\[0\]: offset 20 was to be read next.*EARLIEST"):
            rig.poll()
