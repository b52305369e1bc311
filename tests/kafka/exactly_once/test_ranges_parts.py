"""KafkaRanges over a fake client: which offset ranges a batch has, and how the room is shared."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.errors import FailedBatch, IncompleteBatch
from sunshower.kafka.exactly_once.batch_spouts import KafkaRanges, shares
from sunshower.kafka.partitions.ports import Partition
from sunshower.trident.spouts.bounds import Room
from tests.kafka.fakes import BatchRig, NewBatchRig

A0, A1, A2 = (Partition("a", number) for number in range(3))


NewRanges = Callable[..., BatchRig]


@pytest.fixture
def new_ranges(new_batch_rig: NewBatchRig) -> NewRanges:
    return partial(new_batch_rig, KafkaRanges, seconds=1.0)


def batch(rig: BatchRig, *partitions: int) -> list[tuple[object, ...]]:
    """The ranges of the next batch, of these partitions, without the id of the topic."""
    last = {f"p{number}": rig.metadata.get(f"a@{number}") for number in partitions}
    return [row[:-1] for row in rig.batch(**last)[0]]


def again(rig: BatchRig) -> list[tuple[object, ...]]:
    """The ranges of the last batch, emitted again."""
    return [row[:-1] for row in rig.again()]


def test_a_batch_continues_where_the_last_one_ended_and_fetches_nothing(
    new_ranges: NewRanges,
) -> None:
    rig = new_ranges((3, 10), (0, 250))
    assert batch(rig, 0, 1) == [("a", 0, 3, 10), ("a", 1, 0, 93)]
    assert batch(rig, 0, 1) == [("a", 1, 93, 193)]
    assert again(rig) == [("a", 1, 93, 193)], "a replayed batch has the same ranges"
    rig.client.bounds_of[A0] = (3, 11)
    assert batch(rig, 0, 1) == [("a", 0, 10, 11), ("a", 1, 193, 250)]
    assert rig.client.reads == {}
    rig.spout.committed(rig.metadata)
    rig.client.bounds_of[A1] = (0, 260)
    batch(rig, 0, 1)
    assert rig.spout.figures()["a[1]/lag"] == 10


def test_without_new_messages_a_batch_waits_and_is_empty(new_ranges: NewRanges) -> None:
    rig = new_ranges((0, 0))
    assert batch(rig, 0) == []
    assert rig.clock.now() == pytest.approx(1.0)
    rig.client.bounds_of = {A0: (0, 2)}
    assert batch(rig, 0) == [("a", 0, 0, 2)]


def test_a_bounded_job_reads_the_messages_that_exist_at_its_start(new_ranges: NewRanges) -> None:
    rig = new_ranges((0, 6), records=4, until_end=True)
    assert batch(rig, 0) == [("a", 0, 0, 4)]
    rig.client.bounds_of = {A0: (0, 60)}
    assert not rig.spout.is_end("a@0", rig.metadata["a@0"])
    assert batch(rig, 0) == [("a", 0, 4, 6)]
    assert rig.spout.is_end("a@0", rig.metadata["a@0"])
    assert rig.clock.now() == 0, "there is nothing to wait for"


def test_partitions_whose_bounds_are_unknown_are_left_out_and_asked_last(
    new_ranges: NewRanges,
) -> None:
    rig = new_ranges((0, 5), (0, 5))
    batch(rig, 0, 1)
    rig.clock.advance(1.0)
    rig.client.bounds_of = {A1: (0, 6)}
    assert batch(rig, 0, 1) == [("a", 1, 5, 6)]
    rig.client.bounds_of = {A0: (0, 7), A1: (0, 6)}
    assert batch(rig, 0, 1) == [("a", 0, 5, 7)]


def test_messages_removed_before_they_were_in_a_batch_are_skipped_and_counted(
    new_ranges: NewRanges,
) -> None:
    rig = new_ranges((0, 5))
    batch(rig, 0)
    rig.client.bounds_of = {A0: (8, 9)}
    assert batch(rig, 0) == []
    assert batch(rig, 0) == [("a", 0, 8, 9)]
    assert rig.spout.figures()["skipped"] == 3


def test_a_topic_that_was_created_again_fails_its_batch(
    new_ranges: NewRanges,
) -> None:
    rig = new_ranges((0, 50))
    batch(rig, 0)
    rig.client.bounds_of = {A0: (0, 2)}
    with pytest.raises(FailedBatch, match=r"a\[0\] ends at 2, and 50 was to be read next"):
        batch(rig, 0)


@pytest.mark.parametrize("bounds", [(1, 90), (0, 3)])
def test_a_range_whose_messages_are_gone_is_not_replayed_but_all_others_are(
    new_ranges: NewRanges, bounds: tuple[int, int]
) -> None:
    rig = new_ranges((0, 5), (0, 5), (0, 0))
    batch(rig, 0, 1, 2)
    rig.client.bounds_of[A0] = bounds
    room = Room(rig.spout.bounds, rig.clock)
    expected = (
        rf"a\[0\], offsets 0 to 4: the partition has {bounds[0]} to {bounds[1] - 1} now\. Retent"
    )
    with pytest.raises(IncompleteBatch, match=expected):
        rig.spout.emit_all_again(rig.metadata, room)
    assert [row[:-1] for row in room.rows] == [("a", 1, 0, 5)]


WAITING = st.dictionaries(
    st.integers(0, 50).map(lambda n: Partition("a", n)), st.integers(0, 10**6)
)


@given(WAITING, st.integers(1, 10**7))
def test_shares_use_the_room_and_leave_no_partition_out(
    waiting: dict[Partition, int], room: int
) -> None:
    counts = shares(waiting, room)
    nonempty = [partition for partition in waiting if waiting[partition]]
    assert counts.keys() == waiting.keys()
    assert all(counts[partition] <= waiting[partition] for partition in waiting)
    assert all(counts[partition] for partition in nonempty)
    assert sum(counts.values()) <= max(room, len(nonempty))
    assert sum(counts.values()) >= min(sum(waiting.values()), room)
    cut = [counts[partition] for partition in waiting if counts[partition] < waiting[partition]]
    if cut:
        assert max(counts.values()) - min(cut) <= 1, "larger partitions get equal shares"
