"""Queued inputs of failed trees are dropped, and no other inputs are."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sunshower import Cause, Failure, Number, Records, Topology
from sunshower.runtime.plan import make_plan
from sunshower.runtime.tracking.batch import Batch
from sunshower.runtime.tracking.ids import GENERATION_MASK, U64, make_roots
from sunshower.runtime.tracking.pending import Pending
from sunshower.runtime.tracking.reports import FailedTrees
from sunshower.runtime.worker import Worker
from tests.runtime.rig import Rig, sink
from tests.runtime.test_under_load import Watch

SPOUTS = 2
LAST = GENERATION_MASK


def root(incarnation: int, generation: int, slot: int) -> int:
    return incarnation << 48 | (generation & LAST) << 24 | slot


def roots(*ids: int) -> U64:
    return np.array(ids, np.uint64)


def with_failed(*ids: int) -> FailedTrees:
    """A table in which these were noted as failed, one after the other."""
    trees = FailedTrees(SPOUTS)
    for tree in ids:
        trees.note(roots(tree))
    return trees


def have_failed(trees: FailedTrees, *ids: int) -> list[bool]:
    failed: list[bool] = trees.have_failed(roots(*ids)).tolist()
    return failed


def test_the_replay_of_a_failed_tree_in_the_same_slot_has_not_failed() -> None:
    trees = with_failed(root(3, 7, 5))
    assert have_failed(trees, root(3, 7, 5), root(3, 8, 5)) == [True, False]


def test_earlier_trees_in_the_slot_have_failed_too() -> None:
    assert have_failed(with_failed(root(3, 7, 5)), root(3, 6, 5), root(3, 1, 5)) == [True, True]


def test_a_tree_in_another_slot_has_not_failed_whether_the_table_has_the_slot_or_not() -> None:
    assert have_failed(with_failed(root(3, 7, 5)), root(3, 7, 4), root(3, 7, 900_000)) == [
        False,
        False,
    ]


def test_spout_tasks_and_their_incarnations_are_distinguished() -> None:
    """Incarnation n belongs to spout task n % 2."""
    trees = with_failed(root(3, 7, 5), root(4, 2, 5))
    assert have_failed(trees, root(3, 7, 5), root(4, 2, 5)) == [True, True]
    assert have_failed(trees, root(4, 7, 5), root(5, 1, 5)) == [False, False]
    trees.note(roots(root(5, 1, 9)))  # the next life of task 1
    assert have_failed(trees, root(5, 1, 9), root(5, 1, 5), root(4, 2, 5)) == [True, False, True]


def test_a_table_grows_with_the_slots_and_forgets_nothing() -> None:
    trees = with_failed(root(3, 7, 5), root(3, 1, 5_000), root(3, 2, 1_000_000))
    known = (root(3, 7, 5), root(3, 1, 5_000), root(3, 2, 1_000_000))
    assert have_failed(trees, *known) == [True, True, True]


@given(st.integers(1, LAST), st.integers(-1_000, 1_000))
def test_generations_are_compared_on_a_circle(failed: int, further: int) -> None:
    generation = (failed + further) & LAST
    expected = further <= 0
    assert have_failed(with_failed(root(3, failed, 5)), root(3, generation, 5)) == [expected]


def test_no_open_tree_is_taken_for_a_failed_one_when_generations_wrap_around() -> None:
    """The last generation is followed by 1: those with four zeros at the end are for traced trees.
    A traced tree in generation 0 is never dropped, because the table has 0 for "nothing known"."""
    table = Pending(3, 1)
    table._generation[:] = LAST - 2
    trees, answers = FailedTrees(SPOUTS), []
    for _ in range(5):
        (tree,) = table.take(["record"], [0], 1, 0.0, 30.0).tolist()
        assert have_failed(trees, tree) == [False], "it was not noted as failed"
        trees.note(table.release(roots(tree)).roots)
        answers += have_failed(trees, tree)
    assert answers == [True, True, True, True, True]


def test_failures_are_forgotten_after_one_or_two_minutes() -> None:
    """Later, the generations of a slot may wrap around, and an old note would fit an open tree."""
    failed = FailedTrees(1)
    roots = make_roots(1, np.array([5], np.uint32), np.array([3]))
    failed.note(roots)
    failed.turn(60.0)
    assert failed.have_failed(roots).all()
    failed.turn(119.9)
    assert failed.have_failed(roots).all()
    failed.turn(120.0)
    assert not failed.have_failed(roots).any()


# ---- what is dropped -----------------------------------------------------------------------------


def batch(*trees: list[int]) -> Batch:
    """A record for each list of roots."""
    anchors = roots(*(id_of_root for tree in trees for id_of_root in tree))
    offsets = np.cumsum([0, *map(len, trees)])
    return Batch(0, 0, list(range(len(trees))), anchors, anchors, offsets)


FAILED, OTHER_FAILED, OPEN = root(3, 7, 5), root(3, 4, 6), root(3, 8, 5)


def test_a_record_with_several_anchors_is_dropped_when_all_of_them_have_failed() -> None:
    trees = with_failed(FAILED, OTHER_FAILED)
    inputs = batch([FAILED, OPEN], [FAILED, OTHER_FAILED], [OPEN], [FAILED])
    left = trees.without_failed(inputs)
    assert left.records == [0, 2]
    assert left.roots.tolist() == [FAILED, OPEN, OPEN]
    assert left.offsets is not None
    assert left.offsets.tolist() == [0, 2, 3]


def test_an_untracked_record_is_never_dropped() -> None:
    trees = with_failed(FAILED)
    assert trees.without_failed(batch([], [FAILED], [])).records == [0, 2], "beside others"
    untracked = Batch(0, 0, [1, 2])
    assert trees.without_failed(untracked) is untracked


def test_a_batch_without_failed_trees_is_returned_unchanged() -> None:
    inputs = Batch(0, 0, ["one"], roots(OPEN), roots(1))
    assert with_failed(FAILED).without_failed(inputs) is inputs
    assert with_failed().without_failed(inputs) is inputs


# ---- in spout tasks and bolts --------------------------------------------------------------------


def one_worker(process: Any, **settings: Any) -> Worker:
    topology = Topology("t", ackers=1, workers=1, **settings)
    numbers = topology.spout("numbers", Records([Number(n) for n in range(3)], type=Number))
    numbers.shuffle().bolt("work", process)
    return Worker(make_plan(topology.graph()), 0, 1, np.random.default_rng(0), Watch().clock)


def test_a_spout_that_replays_reports_which_trees_have_failed() -> None:
    topology = Topology("t", ackers=1)
    numbers = topology.spout("numbers", Records([Number(1)], type=Number))
    numbers.shuffle().bolt("next", sink)
    here = Rig(topology)
    spout = here.spout("numbers")
    spout.emit(0.0, 10)
    (tree,) = spout.pending.all_roots().tolist()
    spout.failed(roots(tree), Failure(Cause.TIMEOUT), 31.0)
    assert [failed.tolist() for failed in here.wired.reports.failed] == [[tree]]


def test_an_input_of_a_failed_tree_is_counted_as_expired_and_not_processed() -> None:
    done: list[int] = []

    def work(record: Number) -> None:
        done.append(record.value)

    worker = one_worker(work, spout_pending=3)
    (spout,) = worker._spouts
    (inbox,) = [i for t, i in worker._wired.inboxes.items() if t in worker._wired.bolts]
    while not len(inbox):
        worker.step()
    first, queued = spout.pending.all_roots(), len(inbox)
    spout.expire(0.0)  # all open trees fail while their tuples are in the inbox
    assert len(first) == queued
    list(worker.outgoing())  # the end of a slice of work: the failures are announced
    while worker.step() == 0:
        pass
    (bolt,) = [task for task in worker.stats().tasks if task.component == "work"]
    assert bolt.counts.expired == queued
    assert bolt.counts.executed == len(done) == 3 - queued


def test_a_paused_bolt_passes_over_all_inputs_of_failed_trees_at_its_next_try() -> None:
    """Otherwise each of them would be tried, and the bolt would pause for ten seconds each time."""
    unavailable, done = True, list[int]()

    def work(record: Number) -> None:
        if unavailable:
            raise ConnectionRefusedError("unavailable")
        done.append(record.value)

    topology = Topology("t", ackers=1, workers=1, spout_pending=10)
    numbers = topology.spout("numbers", Records([Number(n) for n in range(10)], type=Number))
    numbers.shuffle().bolt("work", work)
    clock = Watch().clock
    worker = Worker(make_plan(topology.graph()), 0, 1, np.random.default_rng(0), clock)
    (spout,), (bolt,) = worker._spouts, worker._wired.bolts.values()
    inbox = worker._wired.inboxes[bolt.task.id]
    while bolt.supervision.wait is None or len(inbox) < 2:
        worker.step()
    queued = len(inbox)
    spout.expire(clock.now())
    list(worker.outgoing())
    unavailable = False
    clock.advance(bolt.supervision.resumes_s - clock.now())
    while not done:
        assert worker.step() == 0, "the bolt waits for another try"
    assert bolt.expired == queued
