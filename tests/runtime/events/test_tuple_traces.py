"""Tests of tuple traces: edges, joins, failures, replays, unusual values and bounds."""

from __future__ import annotations

import itertools
import pickle
import threading
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from operator import xor
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from sunshower import Bolt, Collector, Secret, Spout, Topology, Tuple
from sunshower.clock import ManualClock
from sunshower.errors import ConfigError
from sunshower.failures import Cause
from sunshower.runtime.events.event_log import What
from sunshower.runtime.events.trace_recorder import (
    BYTES_MAX,
    EDGES_MAX,
    TEXT_BYTES,
    TREES_MAX,
    TraceRecorder,
    Traces,
    TreeEvent,
    TupleTrace,
    edges_of,
    root_number,
    unix_offset,
)
from sunshower.runtime.inline import run_inline
from sunshower.runtime.tracking.batch import Batch
from sunshower.runtime.tracking.ids import make_roots
from sunshower.topologies.operators.aggregators import count

RARE = 1e-9  # a share with which only the first tree and replays are traced


class Item(NamedTuple):
    value: Any


class Items(Spout[Item]):
    def __init__(self, *values: Any) -> None:
        self.values = values

    def records(self) -> Iterator[Item]:
        return map(Item, self.values)


def traces(topology: Topology) -> Traces:
    return run_inline(topology.graph(), clock=ManualClock()).traces


def of(recorded: Traces, message_id: str, attempt: int = 1) -> TupleTrace:
    (tree,) = (t for t in recorded.trees if (t.message_id, t.attempt) == (message_id, attempt))
    return tree


def paths(tree: TupleTrace) -> list[tuple[str, str]]:
    return sorted((hop.source, hop.target) for hop in tree.hops)


def check_whole(tree: TupleTrace) -> None:
    """Check that a tree is complete: each edge is acked, and begins where its parent ends."""
    assert tree.outcome == "complete"
    edges = {hop.edge: hop for hop in tree.hops}
    assert len(edges) == len(tree.hops) > 0
    for hop in tree.hops:
        assert None not in (hop.sent_s, hop.delivered_s, hop.acked_s), hop
        assert hop.record
        assert (hop.parent is None) is (hop.source == tree.spout)
        if hop.parent is not None:
            assert edges[hop.parent].target == hop.source


def split(item: Item) -> Iterator[Item]:
    yield from map(Item, item.value.split())


def drop(item: Item) -> None: ...


def test_a_tree_has_every_edge_with_its_record_and_its_parent() -> None:
    topology = Topology("t", trace_share=1.0)
    words = topology.spout("lines", Items("the cat", "a dog ran")).shuffle().bolt("split", split)
    words.shuffle().bolt("drop", drop)
    recorded = traces(topology)
    assert len(recorded.trees) == 2
    assert not recorded.silent
    tree = of(recorded, "1")
    check_whole(tree)
    assert (tree.spout, tree.number, tree.attempt, tree.worker) == ("lines[0]", 1, 1, 0)
    assert paths(tree) == [("lines[0]", "split[0]"), *[("split[0]", "drop[0]")] * 3]
    records = [hop.record for hop in tree.hops]
    assert records == [f"Item(value={value!r})" for value in ("a dog ran", "a", "dog", "ran")]
    assert tree.latency_s is not None
    assert recorded.slowest[0].latency_s == max(tree.latency_s or 0 for tree in recorded.trees)


def test_the_reports_of_a_tree_are_its_edges_and_the_xor_that_the_acker_keeps() -> None:
    topology = Topology("t", trace_share=1.0)
    words = topology.spout("lines", Items("the cat", "a dog ran")).shuffle().bolt("split", split)
    words.shuffle().bolt("drop", drop)
    for tree in traces(topology).trees:
        (sentence, *leaves), value = [hop.edge for hop in tree.hops], 0
        (start,) = (report for report in tree.reports if report.is_start)
        assert start.edges == (sentence,)
        reported = Counter(edge for report in tree.reports for edge in report.edges)
        assert reported == dict.fromkeys((sentence, *leaves), 2), "when it is sent, and acked"
        for report in tree.reports:
            assert int(report.xor, 16) == reduce(xor, [int(edge, 16) for edge in report.edges])
            value ^= int(report.xor, 16)
            assert (report.acker, report.value) == ("__acker[0]", f"{value:016x}")
        assert value == 0


def test_the_edges_of_a_report_are_not_named_if_others_could_have_the_same_xor() -> None:
    topology = Topology("t", trace_share=1.0)
    words = topology.spout("lines", Items("word " * 40)).shuffle().bolt("split", split)
    words.shuffle().bolt("drop", drop)
    (tree,) = traces(topology).trees
    assert [report.edges for report in tree.reports] == [()] * len(tree.reports)
    assert tree.reports[0].xor == tree.reports[0].value == tree.hops[0].edge
    assert tree.reports[-1].value == "0" * 16


class JoinPairs(Bolt[Item, Item]):
    """Emits one record for two inputs, anchored to both."""

    def __init__(self) -> None:
        self.held: list[Tuple[Item]] = []

    def execute(self, tuple: Tuple[Item], out: Collector[Item]) -> None:
        self.held.append(tuple)
        if len(self.held) == 2:
            out.emit(Item([item.record.value for item in self.held]), self.held)
            for item in self.held:
                out.ack(item)
            self.held = []


def test_a_record_with_two_anchors_is_in_both_trees() -> None:
    topology = Topology("t", trace_share=1.0)
    pairs = topology.spout("items", Items(1, 2)).shuffle().bolt("join", JoinPairs())
    pairs.shuffle().bolt("drop", drop)
    recorded = traces(topology)
    first, second = of(recorded, "0"), of(recorded, "1")
    for tree in (first, second):
        check_whole(tree)
        assert paths(tree) == [("items[0]", "join[0]"), ("join[0]", "drop[0]")]
        assert tree.hops[1].record == "Item(value=[1, 2])"
    assert not {hop.edge for hop in first.hops} & {hop.edge for hop in second.hops}


class FailOnce(Bolt[Item, None]):
    def __init__(self, wrong: Any) -> None:
        self.wrong, self.seen = wrong, set[Any]()

    def process(self, record: Item) -> None:
        if record.value == self.wrong and record.value not in self.seen:
            self.seen.add(record.value)
            raise ValueError("not this one")


def test_a_tuple_is_recorded_from_its_first_replay_on_whatever_the_share() -> None:
    topology = Topology("t", trace_share=RARE)
    topology.spout("items", Items(*range(50))).shuffle().bolt("fail", FailOnce(17))
    recorded = traces(topology)
    assert {(tree.message_id, tree.attempt) for tree in recorded.trees} == {("0", 1), ("17", 2)}
    check_whole(of(recorded, "17", 2))
    assert not recorded.failed


def test_a_failed_tree_shows_where_and_why_and_its_replay_is_beside_it() -> None:
    topology = Topology("t", trace_share=1.0)
    topology.spout("items", Items(*range(20))).shuffle().bolt("fail", FailOnce(17))
    recorded = traces(topology)
    (tree,) = recorded.failed
    assert (tree.message_id, tree.attempt, tree.cause) == ("17", 1, "exception")
    step = "(step `FailOnce.process`, record Item(value=17))"
    assert tree.reason == f"exception in fail[0]: ValueError: not this one {step}"
    (hop,) = tree.hops
    assert (hop.cause, hop.acked_s) == ("exception", None)
    assert hop.refused_s is not None
    check_whole(of(recorded, "17", 2))


def test_without_a_share_nothing_is_recorded_not_even_replays() -> None:
    topology = Topology("t", trace_share=0)
    topology.spout("items", Items(*range(20))).shuffle().bolt("fail", FailOnce(17))
    assert traces(topology).trees == ()


def test_without_ackers_there_are_no_trees() -> None:
    topology = Topology("t", trace_share=1.0, ackers=0)
    topology.spout("items", Items(1, 2)).shuffle().bolt("drop", drop)
    assert traces(topology).trees == ()


def test_rows_that_were_combined_belong_to_the_trees_of_all_their_records() -> None:
    topology = Topology("t", trace_share=1.0)
    words = topology.spout("lines", Items("a b a", "a", "b b")).flat_map(split)
    words.group_by("value").aggregate(count())
    recorded = traces(topology)
    assert len(recorded.trees) == 3
    for tree in recorded.trees:
        check_whole(tree)
        assert len({hop.edge for hop in tree.hops}) == len(tree.hops)
    shared = [
        hop.record for tree in recorded.trees for hop in tree.hops if hop.source != tree.spout
    ]
    assert shared


def test_columns_show_their_rows() -> None:
    recorder, batch = TraceRecorder(ManualClock()), table_batch()
    recorder.note_edges(What.SENT, 1, batch.roots, batch.edges, 2, batch)
    (tree,) = recorder.trees().values()
    assert [event.text for event in tree.events] == ["{'value': 'two'}"]


def table_batch() -> Batch:
    roots = make_roots(1, np.array([1, 16], np.uint32), np.arange(2))
    table = pa.table({"value": ["one", "two"]})
    return Batch(0, 1, table, roots, np.array([11, 12], np.uint64))


# ---- unusual values -----------------------------------------------------------------------------


class ReprRaises:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def shown(value: Any) -> str:
    """The record of the only edge of a tree whose spout emits `value`."""
    topology = Topology("t", trace_share=1.0)
    topology.spout("items", Items(value)).shuffle().bolt("drop", drop)
    (hop,) = traces(topology).trees[0].hops
    return hop.record


def test_a_secret_is_shown_neither_as_a_value_nor_within_another_text() -> None:
    secret = Secret("hunter2-planted-in-a-trace")
    for value in (secret, [secret], f"password={secret.reveal()}", {secret.reveal(): 1}):
        assert "hunter2" not in shown(value)
    for before in range(0, 600, 17):  # wherever the text is clipped
        assert "hunter2-p" not in shown("x" * before + secret.reveal() + "y" * 40_000)


def test_a_huge_record_is_clipped_and_its_end_is_marked() -> None:
    text = shown("x" * 10_000_000)
    assert len(text.encode()) <= TEXT_BYTES
    assert "clipped" in text


def test_values_without_a_repr_or_an_encoding_are_shown_safely() -> None:
    assert "whose repr raised RuntimeError" in shown(ReprRaises())
    assert shown("\ud800").encode()
    assert "\x1b" not in shown("\x1b[31mred")


# ---- bounds -------------------------------------------------------------------------------------


def batch_of(roots: np.ndarray, text: str = "x") -> Batch:
    edges = np.arange(1, len(roots) + 1, dtype=np.uint64)
    return Batch(0, 1, [text] * len(roots), roots, edges)


def size_of(recorder: TraceRecorder) -> int:
    return sum(tree.size for tree in recorder.trees().values())


def test_the_oldest_trees_are_dropped_beyond_the_number() -> None:
    recorder = TraceRecorder(ManualClock())
    roots = make_roots(1, np.full(2 * TREES_MAX, 16, np.uint32), np.arange(2 * TREES_MAX))
    for root in roots.tolist():
        recorder.emitted(1, root, 0, 1, 0)
    assert list(recorder.trees()) == roots.tolist()[TREES_MAX:]
    assert size_of(recorder) == recorder._size


def test_the_oldest_trees_are_dropped_beyond_the_bytes() -> None:
    recorder = TraceRecorder(ManualClock())
    for slot in range(16):
        root = make_roots(1, np.array([16], np.uint32), np.array([slot]))
        batch = batch_of(np.repeat(root, EDGES_MAX), "x" * 1000)
        recorder.note_edges(What.SENT, 1, batch.roots, batch.edges, 2, batch)
        assert size_of(recorder) == recorder._size <= BYTES_MAX
    assert 2 <= len(recorder.trees()) < 16


def test_a_wide_tree_keeps_its_first_edges_with_all_their_events_and_counts_the_others() -> None:
    recorder = TraceRecorder(ManualClock())
    root = make_roots(1, np.array([16], np.uint32), np.array([0]))
    batch = batch_of(np.repeat(root, 3 * EDGES_MAX))
    recorder.note_edges(What.SENT, 1, batch.roots, batch.edges, 2, batch)
    for what in (What.DELIVERED, What.ACKED, *[What.REFUSED] * 100):
        recorder.note_edges(what, 2, batch.roots, batch.edges, Cause.FAILED)
    (tree,) = recorder.trees().values()
    assert tree.dropped == 2 * EDGES_MAX
    edges = edges_of(tree.events)
    assert len(edges) == EDGES_MAX
    for edge in edges:
        assert [event.what for event in edge.events[:3]] == [What.SENT, What.DELIVERED, What.ACKED]
        assert len(edge.events) <= 8


def test_a_tree_keeps_its_first_reports() -> None:
    recorder = TraceRecorder(ManualClock())
    root = int(make_roots(1, np.array([16], np.uint32), np.array([0]))[0])
    for edge in range(2 * EDGES_MAX):
        recorder.reported(9, root, False, edge, edge)
    (tree,) = recorder.trees().values()
    assert [report.xor for report in tree.reports] == [*range(EDGES_MAX)]
    assert size_of(recorder) == recorder._size


def test_an_edge_follows_its_parent_although_the_clocks_of_their_machines_differ() -> None:
    """Task 3 has received edge 8, and sent edge 9, on a machine whose clock is late."""
    events = [
        TreeEvent(0.9, What.DELIVERED, 3, 8),
        TreeEvent(0.9, What.SENT, 3, 9, 4),
        TreeEvent(1.0, What.SENT, 2, 7, 2),
        TreeEvent(1.0, What.SENT, 2, 8, 3),
    ]
    edges = edges_of([TreeEvent(0.8, What.DELIVERED, 4, 9), *events])
    assert [edge.edge for edge in edges] == [8, 9, 7]
    assert edges[1].parent is edges[0]


def test_another_thread_may_read_the_trees_while_they_grow() -> None:
    recorder, ends = TraceRecorder(ManualClock()), threading.Event()

    def record() -> None:
        for slot in itertools.count():
            root = make_roots(1, np.array([16], np.uint32), np.array([slot % 5]))
            batch = batch_of(np.repeat(root, 20))
            batch.edges += np.uint64(20 * slot)
            recorder.note_edges(What.SENT, 1, batch.roots, batch.edges, 2, batch)
            if ends.is_set():
                return

    thread = threading.Thread(target=record)
    thread.start()
    try:
        for _ in range(30):
            assert pickle.loads(pickle.dumps(recorder.trees())) is not None
    finally:
        ends.set()
        thread.join()
    assert 1 <= len(recorder.trees()) <= 5


def test_roots_that_are_not_traced_leave_nothing() -> None:
    recorder = TraceRecorder(ManualClock())
    generations = np.array(
        [generation for generation in range(1, 100) if generation % 16], np.uint32
    )
    batch = batch_of(make_roots(1, generations, np.arange(len(generations))))
    recorder.note_edges(What.SENT, 1, batch.roots, batch.edges, 2, batch)
    assert recorder.trees() == {}


def test_a_pause_while_the_clocks_are_read_does_not_shift_the_times_of_a_worker() -> None:
    clock = ManualClock()
    pauses = iter([2.0, 0.5])

    def unix_time() -> float:
        now_s = 1000.0 + clock.now()
        clock.advance(next(pauses, 0.0))
        return now_s

    assert unix_offset(unix_time, clock) == 1000.0


def test_root_number_reads_the_root_of_a_tree_and_refuses_other_texts() -> None:
    topology = Topology("t", trace_share=1.0)
    topology.spout("items", Items(1, 2)).shuffle().bolt("drop", drop)
    tree = traces(topology).trees[0]
    assert f"{root_number(tree.root):016x}" == tree.root
    for wrong in ("", "xyz", "-1", "0" * 17):
        with pytest.raises(ConfigError, match="is not a valid root of a tree"):
            root_number(wrong)
