"""KafkaSpout over a fake client: errors between a poll of the client and the records it emits."""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import Any

import numpy as np
import pytest

from sunshower.clock import ManualClock
from sunshower.errors import BadOffset, KafkaUnreachable, NotAuthorised
from sunshower.kafka.consuming.start_position import StartPosition
from sunshower.kafka.options import Guarantee
from sunshower.kafka.partitions.ports import Partition, RebalanceListener
from sunshower.kafka.zookeeper.group import ZooKeeperGroup
from sunshower.state.memory_tree import MemoryForest
from tests.kafka.fakes import EOF, FORBIDDEN, RESET, Kept, NewDesk, message
from tests.kafka.groups import Line, Topics, raises


def test_a_range_that_is_skipped_is_told_also_after_an_error(new_desk: NewDesk) -> None:
    desk = new_desk((10, 100), kept=Kept(p0=3))
    desk.open()
    desk.client.waiting = [message(3, error=RESET)]
    desk.poll()
    desk.client.waiting = [message(0, 7, error=FORBIDDEN, topic="b"), message(10)]
    with pytest.raises(NotAuthorised):
        desk.spout.poll(100)
    polled = desk.spout.poll(100)
    assert polled is not None
    assert [one.record["to"] for one in polled.unreadable] == [9]
    assert [*polled.records] == [(0, 10)]
    assert desk.spout.skipped_count == 7


def test_a_commit_that_raises_takes_no_message_along(
    new_desk: NewDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = new_desk((0, 100))
    desk.open()
    desk.client.waiting = [message(0)]
    assert desk.poll() == [(0, 0)]
    desk.spout.acked(np.array([desk.spout._reader.places[Partition("a", 0)].number(0)]))
    begin = desk.spout._reader.committer.begin
    monkeypatch.setattr(desk.spout._reader.committer, "begin", raises(RuntimeError("odd")))
    desk.client.waiting = [message(1)]
    desk.clock.advance(2.0)
    with pytest.raises(RuntimeError, match="odd"):
        desk.spout.poll(100)
    monkeypatch.setattr(desk.spout._reader.committer, "begin", begin)
    assert desk.poll() == [(0, 1)]


def test_who_cannot_have_offsets_leaves_its_group(
    new_desk: NewDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics, lines = Topics(a=1), [Line(MemoryForest())]
    closed: list[bool] = []
    monkeypatch.setattr(lines[0].tree, "close", lambda: closed.append(True))
    group: Any = ZooKeeperGroup(lines[0], "g", ["a"], topics, ManualClock(), Random(1))
    desk = new_desk(
        (0, 100),
        sharing=lambda _: group,
        store=raises(KafkaUnreachable("no offsets")),
    )
    with pytest.raises(KafkaUnreachable, match="no offsets"):
        desk.open()
    assert closed
    assert desk.client.closed


def test_all_is_closed_also_if_the_last_commit_raises(
    new_desk: NewDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = new_desk((0, 100))
    desk.open()
    monkeypatch.setattr(desk.spout._reader, "commit_now", raises(RuntimeError("odd")))
    with pytest.raises(RuntimeError, match="odd"):
        desk.spout.close()
    assert desk.client.closed
    assert desk.offsets.closed


def test_at_most_once_what_cannot_be_committed_waits_and_is_not_lost(new_desk: NewDesk) -> None:
    desk = new_desk((0, 9), (0, 9), guarantee=Guarantee.AT_MOST_ONCE, commit_s=1.0)
    desk.open()
    desk.offsets.away = KafkaUnreachable("no coordinator")
    desk.client.waiting = [message(0), message(2), message(0, 1), message(4, 1, error=EOF)]
    for _ in range(3):
        assert not desk.poll()
        desk.clock.advance(0.4)
    assert desk.spout.standing()[Partition("a", 0)].emitted == 0
    desk.client.waiting.append(message(3))
    desk.offsets.away = None
    desk.clock.advance(1.0)
    assert desk.poll() == [(0, 0), (0, 2), (1, 0)]
    assert (desk.offsets.at(0), desk.offsets.at(1)) == (3, 4)
    assert desk.poll() == [(0, 3)]


def test_at_most_once_what_waits_of_a_partition_that_goes_is_not_emitted(new_desk: NewDesk) -> None:
    desk = new_desk((0, 9), (0, 9), guarantee=Guarantee.AT_MOST_ONCE, commit_s=1.0)
    desk.open()
    desk.offsets.away = KafkaUnreachable("no coordinator")
    desk.client.waiting = [message(0), message(0, 1)]
    assert not desk.poll()
    desk.offsets.away = None
    desk.spout._reader.revoked([Partition("a", 0)], lost=False)
    assert desk.offsets.at(0) in (None, 0)
    desk.clock.advance(1.0)
    assert desk.poll() == [(1, 0)]


def test_an_error_in_reading_lets_the_sharing_look_for_partitions_at_once(
    new_desk: NewDesk,
) -> None:
    desk = new_desk((0, 9), refresh_s=60.0)
    desk.open()
    desk.topics.counts["a"] = 2
    desk.client.bounds_of[Partition("a", 1)] = (0, 9)
    desk.poll()
    assert len(desk.spout.standing()) == 1, "it is not time to refresh yet"
    desk.client.waiting = [message(0, error=FORBIDDEN)]
    with pytest.raises(NotAuthorised):
        desk.poll()
    desk.poll()
    assert len(desk.spout.standing()) == 2


class Follows(RebalanceListener):
    """Records each call, with the committed offset and the number of partitions that are read."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[int], int | None, int]] = []
        self.desk: Any = None
        self.fails = False

    def assigned(self, partitions: Collection[Partition]) -> None:
        self._note("assigned", partitions)

    def revoked(self, partitions: Collection[Partition], *, lost: bool) -> None:
        self._note("lost" if lost else "revoked", partitions)

    def _note(self, what: str, partitions: Collection[Partition]) -> None:
        numbers = sorted(one.number for one in partitions)
        self.told.append((what, numbers, self.desk.offsets.at(0), len(self.desk.client.reads)))
        if self.fails:
            raise RuntimeError("not now")


def test_a_listener_is_told_before_the_first_record_and_after_the_last_commit(
    new_desk: NewDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = Follows()
    desk = new_desk((0, 9), listener=listener)
    listener.desk, listener.fails = desk, True
    with pytest.raises(RuntimeError, match="not now"):
        desk.open()
    assert not desk.client.reads
    listener.fails = False
    desk.open()
    desk.client.waiting = [message(0)]
    assert desk.poll() == [(0, 0)]
    desk.spout.acked(np.array([desk.spout._reader.places[Partition("a", 0)].number(0)]))
    desk.spout.close()
    assert listener.told[1:] == [("assigned", [0], None, 0), ("revoked", [0], 1, 0)]


def test_who_begins_nowhere_but_at_a_commit_says_what_to_do(new_desk: NewDesk) -> None:
    desk = new_desk((10, 100), first=StartPosition.NONE)
    with pytest.raises(BadOffset, match=r"a\[0\]: no offset is committed.* from 10 up to 100"):
        desk.open()
    desk = new_desk((10, 100), first=StartPosition.NONE, kept=Kept(p0=20))
    desk.open()
    assert desk.client.reads == {Partition("a", 0): 20}
    desk.client.waiting = [message(20, error=RESET)]
    desk.client.bounds_of[Partition("a", 0)] = (50, 100)
    desk.poll()
    for _ in range(2):  # the spout does not continue without a decision of the user
        with pytest.raises(BadOffset, match=r"a\[0\]: offset 20 was to be read next.*EARLIEST"):
            desk.poll()
