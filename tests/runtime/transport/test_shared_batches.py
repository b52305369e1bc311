"""Shared batches have one edge for each tree, also after they are encoded, split or joined."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.clock import ManualClock
from sunshower.failures import Cause, Failure
from sunshower.records import Schema
from sunshower.runtime.events.event_log import Entry, EventWriter, What
from sunshower.runtime.events.instrument import Instrument
from sunshower.runtime.plan import PlannedStream
from sunshower.runtime.tracking.batch import Anchors, Batch, can_join, join
from sunshower.runtime.tracking.ids import make_roots, seeded
from sunshower.runtime.tracking.reports import FailedTrees
from sunshower.runtime.transport.channels import Inbox, LocalChannel
from sunshower.runtime.transport.packets import decode_frame, encode_frame
from sunshower.topologies.graph import StreamSpec


class Item(NamedTuple):
    n: int


STREAM = PlannedStream(0, "source", StreamSpec("default", Schema.of(Item)))


def roots_of(slots: list[int]) -> np.ndarray:
    return make_roots(1, np.ones(len(slots), np.uint32), np.array(slots, np.int64))


def shared(slots: list[int], records: int) -> Batch:
    edges = seeded(1).integers(1, 1 << 63, len(slots), np.uint64)
    return Batch(0, 7, [Item(n) for n in range(records)], roots_of(slots), edges, shared=True)


@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True), min_size=1))
def test_edges_of_a_tree_with_several_records_do_not_cancel_out(trees: list[list[int]]) -> None:
    """The XOR of the edges that the inputs of a tree report is its edge in the batch."""
    offsets = np.cumsum([0, *map(len, trees)])
    anchors = Anchors(roots_of([slot for slots in trees for slot in slots]), offsets)
    input_edges = seeded(2).integers(1, 1 << 63, len(anchors), np.uint64)
    roots, edges = anchors.each_root_once(input_edges)
    assert len(set(roots.tolist())) == len(roots)
    for root, edge in zip(roots.tolist(), edges.tolist(), strict=True):
        reported = 0
        for slots, xor in zip(trees, input_edges.tolist(), strict=True):
            if root in roots_of(slots).tolist():
                reported ^= xor
        assert reported == edge != 0


def test_edges_of_the_single_records_xor_to_those_of_the_batch() -> None:
    batch = shared([3, 1, 2], 5)
    spread = batch.spread()
    assert not spread.shared
    assert (spread.roots.reshape(5, 3) == batch.roots).all()
    assert (np.bitwise_xor.reduce(spread.edges.reshape(5, 3), axis=0) == batch.edges).all()
    assert np.unique(spread.edges).size == 15


def test_edges_of_the_parts_xor_to_those_of_the_batch() -> None:
    batch = shared([3, 1, 2], 5)
    first, rest = batch.split(2)
    assert [item.n for item in (*first.records, *rest.records)] == [0, 1, 2, 3, 4]
    assert (first.edges ^ rest.edges == batch.edges).all()
    again = rest.split(1)
    edges = [part.edges for part in (batch, first, rest, *again)]
    assert np.unique(np.concatenate(edges)).size == 15
    for part in (first, rest, *again):
        assert part.shared
        assert part.roots.tolist() == batch.roots.tolist()


@pytest.mark.parametrize("alone", [False, True])
def test_a_shared_batch_decodes_to_what_was_encoded(alone: bool) -> None:
    batch = shared([1, 2], 3)
    batch.alone = alone
    frame = decode_frame(encode_frame(4, 1, batch, STREAM, 1 << 20), [STREAM])
    decoded = frame.batch
    assert frame.error is None
    assert (decoded.shared, decoded.alone, list(decoded.records)) == (
        True,
        alone,
        list(batch.records),
    )
    assert decoded.roots.tolist() == batch.roots.tolist()
    assert decoded.edges.tolist() == batch.edges.tolist()


def test_shared_batches_are_joined_into_one_with_all_their_trees() -> None:
    first, second = shared([3, 1, 2], 5), shared([2, 4], 1)
    second.edges = second.edges ^ np.uint64(7)
    joined = join([first, second])
    assert joined.shared
    assert list(joined.records) == [*first.records, *second.records]
    edges: dict[int, int] = {}
    for part in (first, second):
        for root, edge in zip(part.roots.tolist(), part.edges.tolist(), strict=True):
            edges[root] = edges.get(root, 0) ^ edge
    assert dict(zip(joined.roots.tolist(), joined.edges.tolist(), strict=True)) == edges
    assert len(joined.roots) == 4


def test_joined_batches_have_each_edge_once_in_the_event_log() -> None:
    """Only a tree that is in several batches gets a new edge: the XOR of its edges in them."""
    first, second = shared([3, 1, 2], 5), shared([2, 4], 1)
    second.edges = second.edges ^ np.uint64(7)
    second.is_recorded = True
    entries: list[Entry] = []
    instrument = Instrument(5, EventWriter(ManualClock(), entries.append))
    joined = join([first, second])
    instrument.joined([first, second], joined)
    instrument.delivered(joined)
    instrument.settled(joined, {})

    def logged(what: What) -> list[tuple[int, int]]:
        parts = [entry for entry in entries if entry.what is what]
        return [pair for entry in parts for pair in zip(entry.roots, entry.values, strict=True)]

    def pairs(batch: Batch) -> set[tuple[int, int]]:
        return set(zip(batch.roots, batch.edges, strict=True))

    former, new = pairs(first) | pairs(second), pairs(joined) - pairs(first) - pairs(second)
    assert len(new) == 1
    assert set(logged(What.SENT)) == new
    assert sorted(logged(What.DELIVERED)) == sorted(pairs(first) | new)
    assert sorted(logged(What.ACKED)) == sorted(former | new)


def test_an_inbox_returns_several_shared_batches_on_request() -> None:
    inbox = Inbox()
    sizes = []
    for take in (inbox.take_several, inbox.take_shared):
        for _ in range(3):
            inbox.put(shared([1, 2], 2), LocalChannel(1, 2, 9))
        taken = take(5)
        sizes.append([len(batch) for batch, _, _ in taken])
        inbox.entries.clear()
    assert sizes == [[2], [2, 2]]


def test_a_shared_batch_is_not_joined_with_another_kind() -> None:
    plain = Batch(0, 7, [Item(1)], roots_of([1]), np.array([5], np.uint64))
    alone = Batch(0, 7, [Item(1)], roots_of([1]), np.array([5], np.uint64), alone=True)
    assert can_join(plain, plain)
    assert not any(can_join(plain, other) for other in (shared([1], 1), alone))
    apart = shared([1], 1)
    apart.alone = True
    assert not any(can_join(shared([1], 1), other) for other in (plain, apart))


def test_a_shared_batch_is_dropped_only_if_all_its_trees_have_failed() -> None:
    batch, failed = shared([1, 2], 3), FailedTrees(1)
    failed.note(batch.roots[:1])
    assert len(failed.without_failed(batch)) == 3
    failed.note(batch.roots)
    assert len(failed.without_failed(batch)) == 0


def test_several_trees_that_fail_together_are_charged_to_none_of_them() -> None:
    failure = Failure(Cause.EXCEPTION, "count", 0, "poison")
    assert shared([1], 3).blamed(failure).is_charged
    assert not shared([1, 2], 3).blamed(failure).is_charged
    unavailable = Failure(Cause.UNAVAILABLE, "count", 0, "the store")
    assert shared([1, 2], 3).blamed(unavailable) == unavailable
