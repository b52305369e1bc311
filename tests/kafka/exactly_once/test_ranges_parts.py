"""What ranges batches have, against a client that stands still."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.clock import ManualClock
from sunshower.errors import FailedBatch, IncompleteBatch
from sunshower.kafka.consuming.start_position import StartPosition
from sunshower.kafka.exactly_once.batch_spouts import BatchOptions
from sunshower.kafka.exactly_once.offset_ranges import KafkaRanges, OffsetRange, shares
from sunshower.kafka.partitions.ports import Partition
from sunshower.topologies.components import Context
from sunshower.trident.spouts.bounds import Bounds, Room
from tests.kafka.fakes import SETTINGS, Client

A0, A1, A2 = (Partition("a", number) for number in range(3))


class Desk:
    """A spout of topic `a` that is open, over such a client."""

    def __init__(self, patch: pytest.MonkeyPatch, records: int = 100, **options: Any) -> None:
        self.client, self.clock = Client(), ManualClock()
        patch.setattr("sunshower.kafka.exactly_once.batch_spouts.Consumer", lambda _: self.client)
        bounds = Bounds(records=records, seconds=1.0)
        chosen = BatchOptions(bounds=bounds, **{"first": StartPosition.EARLIEST} | options)
        self.spout = KafkaRanges(SETTINGS, topics=["a"], options=chosen)
        self.spout.open(Context("t", "in", 0, 0, 1, clock=self.clock))
        self.kept: dict[str, Any] = {}

    def batch(self, *partitions: int) -> list[OffsetRange]:
        """The next one, of these partitions."""
        room = Room(self.spout.bounds, self.clock)
        last = {f"a@{number}": self.kept.get(f"a@{number}") for number in partitions}
        self.kept |= self.spout.emit_all_new(last, room)
        return room.rows

    def again(self) -> list[OffsetRange]:
        """The last one."""
        room = Room(self.spout.bounds, self.clock)
        self.spout.emit_all_again(self.kept, room)
        return room.rows


def test_batches_go_on_where_the_last_one_ended_and_fetch_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk(monkeypatch)
    desk.client.bounds_of = {A0: (3, 10), A1: (0, 250)}
    assert desk.batch(0, 1) == [("a", 0, 3, 10), ("a", 1, 0, 93)]
    assert desk.batch(0, 1) == [("a", 1, 93, 193)]
    assert desk.again() == [("a", 1, 93, 193)], "the very same"
    desk.client.bounds_of[A0] = (3, 11)
    assert desk.batch(0, 1) == [("a", 0, 10, 11), ("a", 1, 193, 250)]
    assert desk.client.reads == {}
    desk.spout.committed(desk.kept)
    desk.client.bounds_of[A1] = (0, 260)
    desk.batch(0, 1)
    assert desk.spout.figures()["a[1]/lag"] == 10


def test_while_there_is_nothing_a_batch_waits_and_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(monkeypatch)
    desk.client.bounds_of = {A0: (0, 0)}
    assert desk.batch(0) == []
    assert desk.clock.now() == pytest.approx(1.0)
    desk.client.bounds_of = {A0: (0, 2)}
    assert desk.batch(0) == [("a", 0, 0, 2)]


def test_a_bounded_job_has_what_was_there_when_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(monkeypatch, records=4, until_end=True)
    desk.client.bounds_of = {A0: (0, 6)}
    assert desk.batch(0) == [("a", 0, 0, 4)]
    desk.client.bounds_of = {A0: (0, 60)}
    assert not desk.spout.is_end("a@0", desk.kept["a@0"])
    assert desk.batch(0) == [("a", 0, 4, 6)]
    assert desk.spout.is_end("a@0", desk.kept["a@0"])
    assert desk.clock.now() == 0, "there is nothing to wait for"


def test_partitions_of_which_nobody_tells_are_left_out_and_asked_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk(monkeypatch)
    desk.client.bounds_of = {A0: (0, 5), A1: (0, 5)}
    desk.batch(0, 1)
    desk.clock.advance(1.0)
    desk.client.bounds_of = {A1: (0, 6)}
    assert desk.batch(0, 1) == [("a", 1, 5, 6)]
    desk.client.bounds_of = {A0: (0, 7), A1: (0, 6)}
    assert desk.batch(0, 1) == [("a", 0, 5, 7)]


def test_what_was_removed_before_it_was_in_a_batch_is_passed_over_and_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk(monkeypatch)
    desk.client.bounds_of = {A0: (0, 5)}
    desk.batch(0)
    desk.client.bounds_of = {A0: (8, 9)}
    assert desk.batch(0) == []
    assert desk.batch(0) == [("a", 0, 8, 9)]
    assert desk.spout.figures()["skipped"] == 3


def test_a_topic_that_was_made_anew_fails_its_batch_until_somebody_says_where(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk(monkeypatch)
    desk.client.bounds_of = {A0: (0, 50)}
    desk.batch(0)
    desk.client.bounds_of = {A0: (0, 2)}
    with pytest.raises(FailedBatch, match=r"a\[0\] ends at 2, and 50 was to be read next"):
        desk.batch(0)


@pytest.mark.parametrize("there", [(1, 90), (0, 3)])
def test_a_range_that_is_gone_is_not_emitted_again_and_the_others_are(
    monkeypatch: pytest.MonkeyPatch, there: tuple[int, int]
) -> None:
    desk = Desk(monkeypatch)
    desk.client.bounds_of = {A0: (0, 5), A1: (0, 5), A2: (0, 0)}
    desk.batch(0, 1, 2)
    desk.client.bounds_of[A0] = there
    room = Room(desk.spout.bounds, desk.clock)
    said = rf"a\[0\], offsets 0 to 4: the partition has {there[0]} to {there[1] - 1} now\. Retent"
    with pytest.raises(IncompleteBatch, match=said):
        desk.spout.emit_all_again(desk.kept, room)
    assert room.rows == [("a", 1, 0, 5)]


WAITING = st.dictionaries(
    st.integers(0, 50).map(lambda n: Partition("a", n)), st.integers(0, 10**6)
)


@given(WAITING, st.integers(1, 10**7))
def test_shares_use_the_room_and_let_nobody_wait(waiting: dict[Partition, int], room: int) -> None:
    found = shares(waiting, room)
    there = [one for one in waiting if waiting[one]]
    assert found.keys() == waiting.keys()
    assert all(found[one] <= waiting[one] for one in waiting)
    assert all(found[one] for one in there)
    assert sum(found.values()) <= max(room, len(there))
    assert sum(found.values()) >= min(sum(waiting.values()), room)
    cut = [found[one] for one in waiting if found[one] < waiting[one]]
    if cut:
        assert max(found.values()) - min(cut) <= 1, "who has more gives as much as the others"
