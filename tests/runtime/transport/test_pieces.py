"""Outputs of an input for which the receivers have no room are sent in pieces, in the same tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest

from sunshower import Bolt, Cause, Context, Counter, Number, Records, Topology
from sunshower.runtime.inline import run_inline
from sunshower.runtime.plan import Layout, make_plan
from sunshower.runtime.tracking.batch import Batch, join
from sunshower.runtime.transport.channels import Entry, Inbox, LocalChannel, Taken
from sunshower.runtime.worker import Worker
from sunshower.simulation.cluster import SimCluster
from tests.runtime.rig import ROOT, Rig, balance, edges_by_root, records_of, sink
from tests.runtime.test_under_load import Watch
from tests.simulation.probes import Shared

ROOM = 10  # the window of each channel in `rig`
every_layout = pytest.mark.parametrize("layout", Layout)


def below(record: Number) -> Iterator[Number]:
    """Yields 0 … |record| - 1; raises at the end if the record is negative."""
    yield from map(Number, range(abs(record.value)))
    if record.value < 0:
        raise ValueError("at the end")


def returned(record: Number) -> Iterator[Number]:
    return below(record)


def in_a_list(record: Number) -> list[Number]:
    return list(below(record))


def passed_on(record: Number) -> Iterator[Number]:
    yield record


def thrice(record: Number) -> Iterator[Number]:
    yield from (record, record, record)


def numbered(*roots: int) -> Batch:
    ids = np.array(roots, np.uint64)
    return Batch(0, 0, list(map(Number, roots)), ids, ids)


lazily = pytest.mark.parametrize("impl", [below, returned])


def rig(impl: Callable[[Number], Any]) -> Rig:
    topology = Topology("t", ackers=1)
    source = topology.spout("numbers", Records([Number(0)], type=Number))
    source.shuffle().bolt("make", impl, fields=Number).shuffle().bolt("next", sink)
    here = Rig(topology)
    for channel in here.wired.channels.values():
        channel.window = ROOM
    return here


def batch(here: Rig, *values: int) -> Batch:
    return here.batch("numbers", list(map(Number, values)))


def values(batches: list[Batch]) -> list[int]:
    return [record.value for record in records_of(batches)]


# ---- a piece -------------------------------------------------------------------------------------


@lazily
def test_an_input_is_sent_as_far_as_there_is_room_and_acked_after_its_last_piece(
    impl: Callable[[Number], Any],
) -> None:
    here = rig(impl)
    bolt, inputs = here.bolt("make"), batch(here, 25)
    assert bolt.process(inputs) is None
    pieces = [here.sent("next")]
    while bolt.rare.unfinished is not None:
        assert not here.reports().acks, "the input is not finished"
        bolt.go_on()
        pieces.append(here.sent("next"))
    assert [values(piece) for piece in pieces] == [
        list(range(10)),
        list(range(10, 20)),
        list(range(20, 25)),
    ]
    balance(here.reports().acks, inputs, *pieces)
    assert bolt.stats().counts.acked == 1


@lazily
@pytest.mark.parametrize("size", [ROOM - 1, ROOM, ROOM + 1, 2 * ROOM])
def test_outputs_are_sent_once_and_the_tree_is_complete_whatever_their_number(
    impl: Callable[[Number], Any], size: int
) -> None:
    here = rig(impl)
    bolt, inputs = here.bolt("make"), batch(here, size)
    assert bolt.process(inputs) is None
    for _ in range(3):
        if bolt.rare.unfinished is not None:
            bolt.go_on()
    assert bolt.rare.unfinished is None
    sent = here.sent("next")
    assert values(sent) == list(range(size))
    balance(here.reports().acks, inputs, sent)


@lazily
def test_inputs_that_were_not_started_are_returned_in_their_order(
    impl: Callable[[Number], Any],
) -> None:
    here = rig(impl)
    bolt, inputs = here.bolt("make"), batch(here, 3, 3, 9, 1, 2)
    rest = bolt.process(inputs)
    assert values([rest]) == [1, 2]
    assert rest.roots.tolist() == [ROOT + 3, ROOT + 4]
    assert values([bolt.rare.unfinished.input]) == [9]
    assert set(here.reports().acks) == {ROOT, ROOT + 1}
    bolt.go_on()
    assert set(here.reports().acks) == {ROOT + 2}
    assert bolt.process(rest) is None
    assert values(here.sent("next")) == [*range(3), *range(3), *range(9), 0, 0, 1]


def test_a_returned_list_is_sent_as_a_whole() -> None:
    here = rig(in_a_list)
    bolt, inputs = here.bolt("make"), batch(here, 3, 25, 4)
    rest = bolt.process(inputs)
    assert values([rest]) == [4]
    assert bolt.rare.unfinished is None
    sent = here.sent("next")
    assert values(sent) == [*range(3), *range(25)]
    balance(here.reports().acks, inputs.split(2)[0], sent)


@lazily
def test_the_trees_of_an_input_with_several_anchors_are_complete_together(
    impl: Callable[[Number], Any],
) -> None:
    here = rig(impl)
    bolt = here.bolt("make")
    inputs = here.batch("numbers", [Number(25), Number(2)], [0, 1], [1])
    rest = bolt.process(inputs)
    while bolt.rare.unfinished is not None:
        bolt.go_on()
    assert bolt.process(rest) is None
    balance(here.reports().acks, inputs, here.sent("next"))


@lazily
def test_outputs_of_an_untracked_input_are_sent_in_pieces_without_a_report(
    impl: Callable[[Number], Any],
) -> None:
    here = rig(impl)
    bolt = here.bolt("make")
    bolt.process(here.untracked("numbers", [Number(25)]))
    while bolt.rare.unfinished is not None:
        bolt.go_on()
    sent = here.sent("next")
    assert values(sent) == list(range(25))
    assert not any(output.tracked for output in sent)
    assert not here.reports().acks


# ---- an exception --------------------------------------------------------------------------------


@lazily
def test_an_exception_in_the_first_piece_sends_nothing_of_it(impl: Callable[[Number], Any]) -> None:
    here = rig(impl)
    here.bolt("make").process(batch(here, -5, 2))
    assert values(here.sent("next")) == [0, 1]
    reported = here.reports()
    assert (set(reported.fails), set(reported.acks)) == ({ROOT}, {ROOT + 1})


@lazily
def test_an_exception_in_a_later_piece_fails_the_tree_of_the_pieces_sent_before(
    impl: Callable[[Number], Any],
) -> None:
    here = rig(impl)
    bolt = here.bolt("make")
    bolt.process(batch(here, -25))
    bolt.go_on()
    sent = here.sent("next")
    assert values(sent) == list(range(20))
    assert set(edges_by_root(sent)) == {ROOT}, "they belong to the failed tree"
    bolt.go_on()
    assert bolt.rare.unfinished is None
    assert not here.sent("next"), "nothing of the piece that raised"
    reported = here.reports()
    ((root, (failure,)),) = reported.fails.items()
    assert (root, failure.cause) == (ROOT, Cause.EXCEPTION)
    assert failure.reason.startswith("ValueError: at the end (step `")
    assert not reported.acks
    counts = bolt.stats().counts
    assert (counts.executed, counts.acked, counts.failed) == (1, 0, 1)


@lazily
def test_neighbours_of_an_input_that_raises_in_a_later_piece_are_acked(
    impl: Callable[[Number], Any],
) -> None:
    here = rig(impl)
    bolt = here.bolt("make")
    rest = bolt.process(batch(here, 2, -15, 3))
    bolt.go_on()
    assert bolt.rare.unfinished is None
    bolt.process(rest)
    reported = here.reports()
    assert (set(reported.fails), set(reported.acks)) == ({ROOT + 1}, {ROOT, ROOT + 2})


# ---- a generator without an end ------------------------------------------------------------------


class Endless(Bolt[Number, Number]):
    """For 0, yields all numbers; for another number, yields it."""

    def process(self, record: Number) -> Iterator[Number]:
        return iter([record]) if record.value else map(Number, count())


def endless(record: Number) -> Iterator[Number]:
    yield from map(Number, [record.value] if record.value else count())


class TakesTime(Bolt[Number, None]):
    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def process(self, record: Number) -> None:
        self.watch.clock.advance(0.001)
        self.watch.done += 1


@pytest.mark.parametrize("impl", [endless, Endless()])
def test_an_endless_generator_is_dropped_when_its_tree_has_failed(impl: Any) -> None:
    watch = Watch()
    topology = Topology("t", ackers=1, workers=1, message_timeout_s=2, spout_pending=1)
    source = topology.spout("numbers", Counter(5))
    source.shuffle().bolt("make", impl).shuffle().bolt("next", TakesTime(watch))
    worker = Worker(make_plan(topology.graph()), 0, 1, np.random.default_rng(0), watch.clock)
    (spout,) = worker._spouts
    longest = 0
    while not spout.replays.causes:
        wait_s = worker.step()
        watch.clock.advance(wait_s or 1e-5)
        longest = max(longest, *(len(inbox) for inbox in worker._wired.inboxes.values()))
    assert watch.clock.now() < 2.1
    assert dict(spout.replays.causes) == {Cause.TIMEOUT: 1}
    assert longest < 2 * 250, "a window of a quarter of a second, and a piece of at most a window"
    make = next(b for b in worker._wired.bolts.values() if b.task.component == "make")
    while make.rare.unfinished is not None:
        worker.step()
    assert make.expired == 1
    assert make.stats().counts.acked == 0


class Wide(Bolt[Number, Number]):
    def process(self, record: Number) -> Iterator[Number]:
        return map(Number, range(5_000))


class Written(Shared):
    def __init__(self) -> None:
        self.rows = 0


class Write(Bolt[Number, None]):
    def __init__(self, written: Written) -> None:
        self.written = written

    def prepare(self, context: Context) -> None:
        self.clock = context.clock

    def process(self, record: Number) -> None:
        self.clock.sleep(0.001)
        self.written.rows += 1


@every_layout
def test_inputs_with_many_outputs_do_not_time_out_before_a_slow_bolt(
    layout: Layout,
) -> None:
    """The outputs of each take five seconds; those of all take almost two timeouts."""
    written = Written()
    topology = Topology("wide", spout_pending=1_000)
    source = topology.spout("numbers", Counter(10))
    source.shuffle().bolt("make", Wide()).shuffle().bolt("next", Write(written))
    with SimCluster(1) as cluster:
        run = cluster.submit(topology.graph(), layout)
        assert run.wait(120.0)
        numbers = run.snapshot().component("numbers")
    assert (numbers.acked, numbers.failed, written.rows) == (10, 0, 50_000)


# ---- several small batches processed as one ------------------------------------------------------


def test_inputs_that_were_not_started_wait_in_the_inbox_with_their_own_senders_and_frames() -> None:
    inbox, senders = Inbox(), [LocalChannel(source, 9, ROOM) for source in range(3)]
    batches = [
        replace(numbered(*roots), source=n) for n, roots in enumerate([(1, 2), (3, 4), (5,)])
    ]
    entries: list[Entry] = list(zip(batches, senders, [7, 8, 9], strict=True))
    parts, sizes = [*batches], [2, 2, 1]
    _, rest = join(parts).split(3)
    Taken(join(parts), entries, parts, sizes, 0.0, 0).put_back(inbox, rest)
    assert sizes == [2, 1]
    assert [entry[2] for entry in entries] == [7, None], "not granted before its last record"
    waiting = [inbox.take(ROOM) for _ in range(2)]
    assert [(part.roots.tolist(), part.source, seq) for part, _, seq in waiting] == [
        ([4], 1, 8),
        ([5], 2, 9),
    ]
    assert [sender for _, sender, _ in waiting] == senders[1:]


def test_a_frame_of_failed_trees_is_not_granted_before_the_one_that_came_before_it() -> None:
    inbox, sender = Inbox(), LocalChannel(0, 9, ROOM)
    batches = [numbered(1, 2), numbered(3), numbered(4)]
    entries: list[Entry] = [(part, sender, seq) for seq, part in enumerate(batches, 5)]
    parts, sizes = [batches[0], batches[1].select(np.array([], np.int64)), batches[2]], [2, 1, 1]
    _, rest = join([batches[0], batches[2]]).split(1)
    Taken(join([batches[0], batches[2]]), entries, parts, sizes, 0.0, 0).put_back(inbox, rest)
    assert ([entry[2] for entry in entries], sizes) == ([None], [1])
    waiting = [inbox.take(ROOM) for _ in range(3)]
    assert [(part.roots.tolist(), seq) for part, _, seq in waiting] == [
        ([2], 5),
        ([3], 6),
        ([4], 7),
    ]


def test_small_batches_with_many_outputs_are_all_processed_once() -> None:
    seen = list[int]()
    topology = Topology("t", ackers=1, window_records_max=8)
    source = topology.spout("numbers", Counter(200))
    relayed = source.shuffle().bolt("relay", passed_on, parallelism=5)
    copies = relayed.shuffle().bolt("make", thrice)
    copies.shuffle().bolt("end", lambda number: seen.append(number.value), fields=())
    done = run_inline(topology.graph()).snapshot
    assert sorted(seen) == sorted([*range(200)] * 3)
    assert (done.component("numbers").acked, done.component("make").failed) == (200, 0)
