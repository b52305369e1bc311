"""KafkaRanges over a fake client: which offset ranges a batch has, and how the room is shared."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.errors import FailedBatch, IncompleteBatch
from sunshower.kafka.exactly_once.offset_ranges import KafkaRanges, OffsetRange, shares
from sunshower.kafka.partitions.ports import Partition
from sunshower.trident.spouts.bounds import Room
from tests.kafka.fakes import BatchDesk, NewBatchDesk

A0, A1, A2 = (Partition("a", number) for number in range(3))


NewRanges = Callable[..., BatchDesk]


@pytest.fixture
def new_ranges(new_batches: NewBatchDesk) -> NewRanges:
    return partial(new_batches, KafkaRanges, seconds=1.0)


def batch(desk: BatchDesk, *partitions: int) -> list[OffsetRange]:
    """The ranges of the next batch, of these partitions."""
    return desk.batch(**{f"p{number}": desk.kept.get(f"a@{number}") for number in partitions})[0]


def test_batches_go_on_where_the_last_one_ended_and_fetch_nothing(new_ranges: NewRanges) -> None:
    desk = new_ranges((3, 10), (0, 250))
    assert batch(desk, 0, 1) == [("a", 0, 3, 10), ("a", 1, 0, 93)]
    assert batch(desk, 0, 1) == [("a", 1, 93, 193)]
    assert desk.again() == [("a", 1, 93, 193)], "a replayed batch has the same ranges"
    desk.client.bounds_of[A0] = (3, 11)
    assert batch(desk, 0, 1) == [("a", 0, 10, 11), ("a", 1, 193, 250)]
    assert desk.client.reads == {}
    desk.spout.committed(desk.kept)
    desk.client.bounds_of[A1] = (0, 260)
    batch(desk, 0, 1)
    assert desk.spout.figures()["a[1]/lag"] == 10


def test_while_there_is_nothing_a_batch_waits_and_is_empty(new_ranges: NewRanges) -> None:
    desk = new_ranges((0, 0))
    assert batch(desk, 0) == []
    assert desk.clock.now() == pytest.approx(1.0)
    desk.client.bounds_of = {A0: (0, 2)}
    assert batch(desk, 0) == [("a", 0, 0, 2)]


def test_a_bounded_job_has_what_was_there_when_it_began(new_ranges: NewRanges) -> None:
    desk = new_ranges((0, 6), records=4, until_end=True)
    assert batch(desk, 0) == [("a", 0, 0, 4)]
    desk.client.bounds_of = {A0: (0, 60)}
    assert not desk.spout.is_end("a@0", desk.kept["a@0"])
    assert batch(desk, 0) == [("a", 0, 4, 6)]
    assert desk.spout.is_end("a@0", desk.kept["a@0"])
    assert desk.clock.now() == 0, "there is nothing to wait for"


def test_partitions_of_which_nobody_tells_are_left_out_and_asked_last(
    new_ranges: NewRanges,
) -> None:
    desk = new_ranges((0, 5), (0, 5))
    batch(desk, 0, 1)
    desk.clock.advance(1.0)
    desk.client.bounds_of = {A1: (0, 6)}
    assert batch(desk, 0, 1) == [("a", 1, 5, 6)]
    desk.client.bounds_of = {A0: (0, 7), A1: (0, 6)}
    assert batch(desk, 0, 1) == [("a", 0, 5, 7)]


def test_what_was_removed_before_it_was_in_a_batch_is_passed_over_and_told(
    new_ranges: NewRanges,
) -> None:
    desk = new_ranges((0, 5))
    batch(desk, 0)
    desk.client.bounds_of = {A0: (8, 9)}
    assert batch(desk, 0) == []
    assert batch(desk, 0) == [("a", 0, 8, 9)]
    assert desk.spout.figures()["skipped"] == 3


def test_a_topic_that_was_made_anew_fails_its_batch_until_somebody_says_where(
    new_ranges: NewRanges,
) -> None:
    desk = new_ranges((0, 50))
    batch(desk, 0)
    desk.client.bounds_of = {A0: (0, 2)}
    with pytest.raises(FailedBatch, match=r"a\[0\] ends at 2, and 50 was to be read next"):
        batch(desk, 0)


@pytest.mark.parametrize("there", [(1, 90), (0, 3)])
def test_a_range_that_is_gone_is_not_emitted_again_and_the_others_are(
    new_ranges: NewRanges, there: tuple[int, int]
) -> None:
    desk = new_ranges((0, 5), (0, 5), (0, 0))
    batch(desk, 0, 1, 2)
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
        assert max(found.values()) - min(cut) <= 1, "larger partitions get equal shares"
