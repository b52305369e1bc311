"""Which offset may be committed: Progress is compared with a simple model of sets and lists."""

from __future__ import annotations

import time
from itertools import count
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.kafka.consuming.partition_reader import OFFSET_BITS, ReadPartitions
from sunshower.kafka.partitions.ports import Partition
from sunshower.runtime.tasks.spouts.watermark_sender import WATERMARK
from sunshower.state.log_progress import Progress


class Model:
    """A model of Progress, in sets and lists."""

    def __init__(self, start: int) -> None:
        self.emitted, self.open, self.acked = start, list[int](), set[int]()

    @property
    def contiguous(self) -> int:
        left = [offset for offset in self.open if offset not in self.acked]
        return left[0] if left else self.emitted


STEPS = st.lists(
    st.one_of(
        # The integers are the distances between offsets.
        st.tuples(st.just("emit"), st.lists(st.integers(1, 4), max_size=40)),
        st.tuples(st.just("ack"), st.sets(st.integers(0, 400), max_size=40)),
        st.tuples(st.just("reached"), st.integers(0, 5)),
    ),
    max_size=40,
)


@given(start=st.integers(0, 50), steps=STEPS)
def test_progress_is_that_of_the_model(start: int, steps: list[tuple[str, Any]]) -> None:
    progress, model = Progress(start), Model(start)
    for what, given_ in steps:
        if what == "emit":
            offsets = (model.emitted - 1 + np.cumsum(given_)).tolist()
            progress.emit(np.array(offsets, np.int64))
            model.open += offsets
            model.emitted = max([model.emitted, *(offset + 1 for offset in offsets)])
        elif what == "ack":
            progress.ack(np.array(list(given_), np.int64))
            model.acked |= given_ & set(model.open)
        else:
            model.emitted += given_
            progress.reached(model.emitted)
        left = [offset for offset in model.open if offset not in model.acked]
        assert (progress.contiguous, progress.emitted) == (model.contiguous, model.emitted)
        assert progress.open == len(left)
        assert progress.holes == sum(offset < max(model.acked, default=0) for offset in left)


def test_offsets_that_compaction_has_removed_count_as_settled() -> None:
    progress = Progress(0)
    progress.emit(np.array([3, 7, 9]))
    assert progress.contiguous == 3
    progress.ack(np.array([3, 9]))
    assert (progress.contiguous, progress.holes) == (7, 1)
    progress.ack(np.array([7]))
    assert progress.contiguous == 10


def test_a_transaction_marker_at_the_end_is_settled_when_the_end_is_reported() -> None:
    progress = Progress(0)
    progress.emit(np.array([0, 1]))
    progress.reached(3)
    assert progress.contiguous == 0
    progress.ack(np.array([0, 1]))
    assert progress.contiguous == 3


def test_an_open_offset_at_the_front_does_not_slow_down_the_acks_behind_it() -> None:
    def seconds(count: int) -> float:
        progress = Progress(0)
        progress.emit(np.arange(1 + count * 100))
        begun_s = time.process_time()
        for batch in range(count):
            progress.ack(np.arange(1 + batch * 100, 101 + batch * 100))
        assert progress.contiguous == 0
        progress.ack(np.array([0]))
        assert progress.contiguous == 1 + count * 100
        return time.process_time() - begun_s

    few, many = (min(seconds(count) for _ in range(3)) for count in (1_000, 10_000))
    assert many < 30 * few, "ten times as many batches need far more than ten times the time"


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 99)), unique=True, max_size=200))
def test_acks_of_several_partitions_are_counted_for_their_partition(
    pairs: list[tuple[int, int]],
) -> None:
    places = ReadPartitions()
    for number in range(5):
        places.take(Partition("t", number), 0).progress.emit(np.arange(100))
    of = [places[Partition("t", number)] for number in range(5)]
    places.acked(np.array([of[part].number(offset) for part, offset in pairs], np.int64))
    for part in range(5):
        acked = {offset for owner, offset in pairs if owner == part}
        assert of[part].progress.open == 100 - len(acked)
        assert of[part].progress.contiguous == min({*range(101)} - acked)


def test_message_numbers_survive_a_restart_and_identify_partition_and_offset() -> None:
    first, second = ReadPartitions(), ReadPartitions()
    first.take(Partition("a", 0), 0)
    number = first.take(Partition("b", 3), 0).number(17)
    assert second.take(Partition("b", 3), 5).number(17) == number
    assert second.name(number) == ("b", 3, 17)
    assert 0 < number < 1 << 63
    assert number & ((1 << OFFSET_BITS) - 1) == 17


def test_acks_of_a_dropped_partition_are_ignored() -> None:
    places = ReadPartitions()
    place = places.take(Partition("a", 0), 0)
    place.progress.emit(np.arange(3))
    places.drop(place.partition)
    places.acked(np.array([place.number(1)]))
    assert place.progress.open == 3


def test_offsets_behind_a_rewind_may_be_emitted_again() -> None:
    progress = Progress(0)
    progress.emit(np.array([0, 1, 5, 7]))
    progress.ack(np.array([0]))
    progress.back(5)
    assert (progress.contiguous, progress.emitted, progress.open) == (1, 5, 1)
    progress.emit(np.array([5, 6]))
    progress.ack(np.array([1, 5, 6]))
    assert progress.contiguous == 7
    progress.back(2)
    assert (progress.contiguous, progress.emitted, progress.unsettled) == (2, 2, 0)


@pytest.mark.parametrize("partitions", [1, 4, 40])
def test_message_numbers_of_several_partitions_are_grouped_by_partition(partitions: int) -> None:
    places = ReadPartitions()
    taken = [places.take(Partition("a", number), 0) for number in range(partitions)]
    stranger = ReadPartitions().take(Partition("b", 0), 0)
    draw = np.random.default_rng(1)
    wanted = {place.partition: {*draw.integers(0, 1 << 40, 20).tolist()} for place in taken[1:]}
    numbers = [place.number(at) for place in taken[1:] for at in wanted[place.partition]]
    mixed = draw.permutation(np.array([*numbers, stranger.number(7)], np.int64))
    grouped = {place.partition: {*offsets.tolist()} for place, offsets in places.each(mixed)}
    assert grouped == wanted
    assert [*places.each(mixed[:0])] == []


def test_no_message_has_the_number_of_a_watermark() -> None:
    number = next(n for n in count() if crc32(f"{Partition('t', n)}".encode()) % 2**15 == 2**14)
    assert ReadPartitions().take(Partition("t", number), 0).number(0) != WATERMARK
