"""Tests of the events that tasks record: rows, order and details, as event_log.py defines them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from sunshower import Bolt, Cause, Collector, Context, Retry, Topology, Tuple
from sunshower.clock import ManualClock
from sunshower.runtime.events.event_log import NO_TASK, Entry, EventWriter, What
from sunshower.runtime.tracking.ids import slots_of
from tests.runtime.levels import (
    BAD,
    COUNT,
    Automatic,
    Columns,
    FailsOnce,
    Manual,
    Number,
    Own,
    Rows,
    Table,
    chain,
    sink,
)
from tests.runtime.recorded import Alone, Recorded
from tests.runtime.rig import ROOT

# ---- spouts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("spout", [Rows(), Columns(), Own()], ids=["rows", "columns", "own"])
def test_spout_records_each_emit_with_its_attempt_and_verdict(spout: Any) -> None:
    run = Alone(chain(spout, Automatic()))
    run.run()
    run.check_shapes()
    spout_id = run.id("numbers")
    tracked = [n for n in range(COUNT) if n % 3 or not isinstance(spout, Own)]
    emitted = run.rows(What.EMITTED, task=spout_id)
    assert sorted(row.value for row in emitted) == sorted([*tracked, BAD]), (
        "each once, and BAD twice"
    )
    assert len({row.root for row in emitted}) == len(emitted), "each emit is a tree of its own"
    (failed,) = run.of(What.FAILED)
    assert (failed.values.tolist(), failed.attempts.tolist()) == ([BAD], [1])
    assert failed.detail == [Cause.EXCEPTION]
    completed = {n: a for e in run.of(What.COMPLETED) for n, a in _attempts(e).items()}
    assert completed == {n: 2 if n == BAD else 1 for n in tracked}
    assert run.replay() == {row.root for row in emitted} - set(failed.roots.tolist())


@pytest.mark.parametrize("spout", [Rows(), Own()], ids=["rows", "own"])
def test_message_ids_are_recorded_only_if_they_are_not_the_numbers(spout: Any) -> None:
    run = Alone(chain(spout, Automatic()))
    run.run()
    for entry in run.of(What.EMITTED):
        ids = [f"id {n}" for n in entry.values.tolist()]
        assert entry.detail == (ids if isinstance(spout, Own) else None)


def _attempts(entry: Entry) -> dict[int, int]:
    return dict(zip(entry.values.tolist(), entry.attempts.tolist(), strict=True))


@pytest.mark.parametrize("spout", [Rows(), Columns(), Own()], ids=["rows", "columns", "own"])
def test_message_that_used_up_its_attempts_is_dead_and_its_letter_is_complete(
    spout: Any,
) -> None:
    def never(record: Number) -> None:
        if record.n == BAD:
            raise ValueError

    topology = Topology("t", ackers=1, workers=1)
    retry = Retry(attempts=2, initial_s=0.1, dead_letters=True)
    numbers = topology.spout("numbers", spout, retry=retry)
    numbers.shuffle().bolt("never", never)
    numbers.stream("dead_letters").shuffle().bolt("letters", sink)
    run = Alone(topology)
    run.run()
    run.check_shapes()
    (dead,) = run.of(What.DEAD)
    assert (dead.task, dead.values.tolist()) == (run.id("numbers"), [BAD])
    after = run.entries[run.entries.index(dead) + 1 :]
    ends = [e for e in after if e.what is What.COMPLETED and BAD in e.values]
    assert [_attempts(e)[BAD] for e in ends] == [3], "the dead letter is its third emit"
    assert not any(e.what is What.FAILED for e in after)


def test_tree_that_times_out_has_failed_with_that_cause() -> None:
    class Forgets(Bolt[Number, None]):
        def execute(self, tuple: Tuple[Number], out: Collector[Any]) -> None: ...

    topology = Topology("t", ackers=1, workers=1, message_timeout_s=30, spout_pending=COUNT)
    topology.spout("numbers", Rows()).shuffle().bolt("forgets", Forgets)
    run = Alone(topology)
    run.work()
    run.clock.advance(31)
    run.work()
    (failed,) = run.of(What.FAILED)
    assert failed.detail == [Cause.TIMEOUT] * COUNT
    assert failed.at_s == 31
    assert len(run.rows(What.DELIVERED)) >= COUNT
    assert not run.rows(What.ACKED, What.REFUSED), "no edge is settled"


def test_untracked_records_have_no_rows() -> None:
    topology = Topology("t", ackers=0, workers=1)
    topology.spout("numbers", Rows()).shuffle().bolt("sink", sink)
    run = Alone(topology)
    run.run()
    assert [entry.what for entry in run.entries] == [What.STARTED]


# ---- bolts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("bolt", [Automatic, Manual, Table], ids=["process", "execute", "batch"])
def test_each_edge_is_sent_delivered_and_settled_once(bolt: type[FailsOnce]) -> None:
    run = Alone(chain(Rows(), bolt()))
    run.run()
    run.check_shapes()
    run.replay()
    source, middle, end = run.id("numbers"), run.id("bolt"), run.id("sink")
    into = [row[2:4] for row in run.rows(What.SENT, task=source)]
    assert [row[2:4] for row in run.rows(What.DELIVERED, task=middle)] == into
    settled = [row[2:4] for row in run.rows(What.ACKED, What.REFUSED, task=middle)]
    assert sorted(settled) == sorted(into)
    out = [row[2:4] for row in run.rows(What.SENT, task=middle)]
    assert sorted(row[2:4] for row in run.rows(What.ACKED, task=end)) == sorted(out)
    assert {row.detail for row in run.rows(What.SENT, task=source)} == {middle}
    assert {row.detail for row in run.rows(What.SENT, task=middle)} == {end}
    refused = run.rows(What.REFUSED)
    bad = {row.root for row in run.rows(What.EMITTED) if row.value == BAD}
    assert {row.root for row in refused} & bad, "the input that failed"
    assert bolt is Table or len(refused) == 1, "and no other, except rows of the same table"
    assert {row.detail for row in refused} == {Cause.FAILED if bolt is Manual else Cause.EXCEPTION}


@pytest.mark.parametrize("bolt", [Automatic, Manual, Table], ids=["process", "execute", "batch"])
def test_events_of_a_tree_are_in_order_from_its_emit_to_its_completion(
    bolt: type[FailsOnce],
) -> None:
    run = Alone(chain(Rows(), bolt()))
    run.run()
    middle = run.id("bolt")
    places: dict[int, dict[tuple[What, bool], int]] = {}
    for at, row in enumerate(run.rows(*What)):
        places.setdefault(row.root, {}).setdefault((row.what, row.task == middle), at)
    complete = {row.root for row in run.rows(What.COMPLETED)}
    wanted = [
        (What.EMITTED, False),
        (What.SENT, False),
        (What.DELIVERED, True),
        (What.SENT, True),
        (What.ACKED, True),
        (What.COMPLETED, False),
    ]
    for root in complete:
        order = [places[root][step] for step in wanted]
        assert order == sorted(order)


def test_batch_whose_flush_raises_is_refused_as_a_whole() -> None:
    class Durable(Bolt[Number, None]):
        calls = 0

        def process(self, record: Number) -> None: ...

        def flush(self) -> None:
            Durable.calls += 1
            if Durable.calls == 1:
                raise OSError("disk full")

    run = Alone(chain(Rows(), Durable))
    run.run()
    refused = run.rows(What.REFUSED)
    assert refused
    assert [row[2:4] for row in refused] == [
        row[2:4] for row in run.rows(What.DELIVERED, task=run.id("bolt"))
    ][: len(refused)]


def test_quarantined_bolt_refuses_inputs_that_were_never_delivered() -> None:
    class Broken(Bolt[Number, Number]):
        def prepare(self, context: Context) -> None:
            raise OSError("gone")

        def process(self, record: Number) -> Iterator[Number]:
            yield record

    run = Alone(chain(Rows(), Broken, task_errors_max=1))
    run.work()
    assert {row.detail for row in run.rows(What.REFUSED)} == {Cause.QUARANTINED}
    assert not run.rows(What.DELIVERED)


def test_manual_bolt_may_ack_much_later() -> None:
    class Lazy(Bolt[Number, None]):
        def prepare(self, context: Context) -> None:
            self.held: list[Tuple[Number]] = []

        def execute(self, tuple: Tuple[Number], out: Collector[None]) -> None:
            self.held.append(tuple)
            if len(self.held) == COUNT:
                for held in self.held:
                    out.ack(held)

    run = Alone(chain(Rows(), Lazy))
    run.run()
    kinds = [row.what for row in run.rows(What.DELIVERED, What.ACKED, task=run.id("bolt"))]
    assert kinds == [What.DELIVERED] * COUNT + [What.ACKED] * COUNT
    assert len(run.replay()) == COUNT


def test_record_with_several_anchors_has_a_row_for_each_of_its_trees() -> None:
    class Pairs(Bolt[Number, Number]):
        def prepare(self, context: Context) -> None:
            self.waiting: Tuple[Number] | None = None

        def execute(self, tuple: Tuple[Number], out: Collector[Number]) -> None:
            if self.waiting is None:
                self.waiting = tuple
                return
            out.emit(tuple.record, [self.waiting, tuple])
            out.ack(self.waiting)
            out.ack(tuple)
            self.waiting = None

    for after in (Automatic, Manual):  # trees of inputs in arrays, and in objects
        topology = Topology("t", ackers=1, workers=1)
        pairs = topology.spout("numbers", Rows()).shuffle().bolt("pairs", Pairs)
        pairs.shuffle().bolt("after", after())
        run = Alone(topology)
        run.run()
        run.check_shapes()
        sent = run.rows(What.SENT, task=run.id("pairs"))
        delivered = run.rows(What.DELIVERED, task=run.id("after"))
        assert [row[2:4] for row in delivered] == [row[2:4] for row in sent]
        refused = run.rows(What.REFUSED, task=run.id("after"))
        assert len(refused) == 2, "both trees of the pair with the bad number"
        acked = run.rows(What.ACKED, task=run.id("after"))
        assert sorted(row[2:4] for row in acked + refused) == sorted(row[2:4] for row in sent)
        run.replay()


def test_input_whose_outputs_cannot_be_routed_is_refused_and_the_others_are_acked() -> None:
    class RaisesForBad:
        def prepare(self, targets: list[int]) -> None:
            self.targets = targets
            self.left = 2  # a batch is tried as a whole, and then record by record

        def choose(self, record: Number) -> list[int]:
            if record.n == BAD and self.left:
                self.left -= 1
                raise KeyError(record.n)
            return self.targets

    for bolt in (Automatic, Manual):
        instance = bolt()
        instance.failed = True  # only the grouping raises
        topology = Topology("t", ackers=1, workers=1)
        numbers = topology.spout("numbers", Rows(), retry=Retry(initial_s=0.1))
        numbers.shuffle().bolt("bolt", instance).custom(RaisesForBad()).bolt("sink", sink)
        run = Alone(topology)
        run.run()
        refused = run.rows(What.REFUSED)
        bad = [row.root for row in run.rows(What.EMITTED) if row.value == BAD]
        assert [row.root for row in refused] == bad[:-1] != []
        assert len(run.rows(What.ACKED, task=run.id("bolt"))) == COUNT
        run.replay()


# ---- the event writer ---------------------------------------------------------------------------


def test_first_entry_of_a_life_is_started() -> None:
    run = Alone(chain(Rows(), Automatic()))
    assert [(e.what, e.task, e.detail) for e in run.entries] == [(What.STARTED, NO_TASK, (0, 1))]


def test_sample_keeps_whole_trees_and_everything_else() -> None:
    whole, part = Alone(chain(Rows(), Automatic())), Alone(chain(Rows(), Automatic()), sample=4)
    whole.run()
    part.run()
    for what in What:
        wanted = whole.rows(what)
        if what in (What.SENT, What.DELIVERED, What.ACKED, What.REFUSED):
            wanted = [row for row in wanted if row.root % (1 << 24) % 4 == 0]
            assert wanted or what is What.REFUSED
        assert part.rows(what) == wanted
    part.replay()


def test_event_writer_keeps_no_empty_entry_and_takes_the_time_of_its_clock() -> None:
    recorded = Recorded()
    event_writer = EventWriter(ManualClock(5.0), recorded.entries.append, sample=2)
    odd = np.array([ROOT + 1], np.uint64)
    event_writer.note_edges(What.SENT, 1, odd, odd)
    assert not recorded.entries
    both = np.array([ROOT + 1, ROOT + 2], np.uint64)
    event_writer.note_edges(What.SENT, 1, both, both + np.uint64(7), detail=3)
    (entry,) = recorded.entries
    assert (entry.at_s, entry.task, entry.detail) == (5.0, 1, 3)
    assert slots_of(entry.roots).tolist() == [2]
    assert entry.values.tolist() == [ROOT + 9]


def test_columns_of_an_entry_are_empty_by_default() -> None:
    entry = Entry(1.0, What.BEGUN, detail="kill split")
    assert (len(entry.roots), len(entry.values), len(entry.attempts)) == (0, 0, 0)
    assert (entry.task, entry.detail) == (NO_TASK, "kill split")
