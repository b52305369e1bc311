"""The ledger against a simple model: for each tree, the edges that were reported exactly once.

An edge is reported twice, by the task that created it and by the task that consumed it, in any
order. A tree is complete when its start was reported and no such edge is left. All else (dense
tables, generations, folding, growth, several shards) is internal to the ledger, and must not change
the verdicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import xor

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from sunshower.runtime.tracking.ids import GENERATION_MASK, INCARNATIONS_MAX, EdgeIds
from sunshower.runtime.tracking.ledger import Ledger, SettledTrees

STRIDES = (3, 1)  # two spout tasks; the slots of the first are spread over three shards
RESIDUE = 1  # of the first task's slots, this shard follows 1, 4, 7 …
SLOTS = ([1, 4, 7, 4 + 15 * 1_024], [0, 1, 2, 3_000])  # the last ones make the tables grow
HALF = 1 << 23


def root_id(incarnation: int, generation: int, slot: int) -> int:
    return incarnation << 48 | generation << 24 | slot


@dataclass
class Tree:
    """A tree as it really is: the edges that no bolt has acked yet."""

    root: int
    open: list[int]


@dataclass
class ReportedTree:
    """A tree according to the reports that have reached the acker."""

    once: set[int] = field(default_factory=set)  # edges that were reported once so far
    started: bool = False
    failed: bool = False
    closed: bool = False


@dataclass(frozen=True)
class Message:
    kind: str  # start, ack or fail
    root: int
    edges: tuple[int, ...] = ()


class Model:
    """What an acker knows: the newest life of each task, the newest generation of each slot, and
    the edges of their trees."""

    def __init__(self) -> None:
        self.lives: dict[int, int] = {}  # spout task → incarnation
        # (incarnation, slot) → (generation, tree)
        self.trees: dict[tuple[int, int], tuple[int, ReportedTree]] = {}

    def report(self, messages: Sequence[Message]) -> tuple[set[int], set[int]]:
        """One report. Returns the roots of trees that are complete, and that have failed."""
        of_life: dict[int, list[Message]] = {}
        for message in messages:
            of_life.setdefault(message.root >> 48, []).append(message)
        touched = [t for life in sorted(of_life) for t in self._report_life(life, of_life[life])]
        done = [(root, tree) for root, tree in touched if self._is_done(tree)]
        for _, tree in done:
            tree.closed = True
        return {r for r, t in done if not t.failed}, {r for r, t in done if t.failed}

    def _report_life(self, life: int, messages: list[Message]) -> list[tuple[int, ReportedTree]]:
        task = life % len(STRIDES)
        behind = (self.lives.get(task, life) - life) % INCARNATIONS_MAX
        if 0 < behind <= INCARNATIONS_MAX // 2:
            return []
        self.lives[task] = life
        for message in messages:  # all generations first: messages to older ones are late
            self._open(message.root)
        changed = {}
        for message in messages:
            generation, tree = self.trees[life, message.root & 0xFFFFFF]
            if generation == message.root >> 24 & GENERATION_MASK and not tree.closed:
                self._apply(tree, message)
                changed[message.root] = tree
        return list(changed.items())

    def _open(self, root: int) -> None:
        place, generation = (root >> 48, root & 0xFFFFFF), root >> 24 & GENERATION_MASK
        known = self.trees.get(place)
        if known is None or 0 < (generation - known[0]) % (GENERATION_MASK + 1) < HALF:
            self.trees[place] = (generation, ReportedTree())

    def _apply(self, tree: ReportedTree, message: Message) -> None:
        if message.kind == "fail":
            tree.failed = True
        elif message.kind == "ack" or not tree.started:  # a start counts once
            tree.once ^= set(message.edges)
        tree.started |= message.kind == "start"

    def _is_done(self, tree: ReportedTree) -> bool:
        return tree.started and (tree.failed or not tree.once) and not tree.closed

    def open_count(self) -> int:
        alive = set(self.lives.values())
        return sum(
            tree.started and not tree.closed
            for (life, _), (_, tree) in self.trees.items()
            if life in alive
        )


class LedgerAgainstModel(RuleBasedStateMachine):
    """Spouts emit, bolts ack and fail; the network shuffles, repeats and drops their messages."""

    def __init__(self) -> None:
        super().__init__()
        self.edges = EdgeIds(np.random.default_rng(0))
        self.ledger = Ledger(STRIDES)
        self.model = Model()
        self.lives = [2, 3]
        self.generations: dict[tuple[int, int], int] = {}
        self.trees: list[Tree] = []
        self.messages: list[Message] = []

    @initialize(first=st.sampled_from([2, 126, 254, INCARNATIONS_MAX - 4]))
    def start_near_the_last_incarnation(self, first: int) -> None:
        self.lives = [first, first + 1]  # incarnation i belongs to spout task i % 2

    @rule(task=st.sampled_from([0, 1]), place=st.integers(0, 3), receivers=st.integers(0, 3))
    def spout_emits(self, task: int, place: int, receivers: int) -> None:
        slot = SLOTS[task][place]
        before = self.generations.get((task, slot), GENERATION_MASK - 1)  # so that they wrap soon
        generation = self.generations[task, slot] = (before + 1) & GENERATION_MASK
        tree = Tree(
            root_id(self.lives[task], generation, slot), self.edges.draw(receivers).tolist()
        )
        self.trees = [*self.trees[-9:], tree]
        self.messages.append(Message("start", tree.root, tuple(tree.open)))

    @rule(task=st.sampled_from([0, 1]))
    def spout_restarts(self, task: int) -> None:
        self.lives[task] = (self.lives[task] + len(STRIDES)) % INCARNATIONS_MAX

    @precondition(lambda self: any(tree.open for tree in self.trees))
    @rule(data=st.data(), children=st.integers(0, 3))
    def bolt_acks(self, data: st.DataObject, children: int) -> None:
        tree = data.draw(st.sampled_from([tree for tree in self.trees if tree.open]))
        consumed = tree.open.pop(data.draw(st.integers(0, len(tree.open) - 1)))
        new_edges = self.edges.draw(children).tolist()
        tree.open += new_edges
        self.messages.append(Message("ack", tree.root, (consumed, *new_edges)))

    @precondition(lambda self: self.trees)
    @rule(data=st.data())
    def bolt_fails(self, data: st.DataObject) -> None:
        tree = data.draw(st.sampled_from(self.trees))
        self.messages.append(Message("fail", tree.root))

    @precondition(lambda self: self.messages)
    @rule(data=st.data())
    def network_drops(self, data: st.DataObject) -> None:
        self.messages.pop(data.draw(st.integers(0, len(self.messages) - 1)))

    @precondition(lambda self: self.messages)
    @rule(data=st.data(), again=st.booleans())
    def network_delivers(self, data: st.DataObject, again: bool) -> None:
        kind = data.draw(st.sampled_from(sorted({message.kind for message in self.messages})))
        waiting = [message for message in self.messages if message.kind == kind]
        report = data.draw(st.lists(st.sampled_from(waiting), min_size=1, max_size=8))
        if not again:
            self.messages = [message for message in self.messages if message not in report]
        self.deliver(kind, report)

    @rule()
    def network_delivers_all_starts_then_all_acks(self) -> None:
        waiting, self.messages = self.messages, []
        for kind in ("start", "ack"):
            if report := [message for message in waiting if message.kind == kind]:
                self.deliver(kind, report)

    def deliver(self, kind: str, report: list[Message]) -> None:
        roots = np.array([message.root for message in report], np.uint64)
        xors = np.array([reduce(xor, message.edges, 0) for message in report], np.uint64)
        settled = (
            self.ledger.fail(roots) if kind == "fail" else getattr(self.ledger, kind)(roots, xors)
        )
        complete, failed = self.model.report(report)
        assert sorted(settled.complete.tolist()) == sorted(complete)
        assert sorted(settled.failed.tolist()) == sorted(failed)

    @invariant()
    def ledger_agrees_with_the_model(self) -> None:
        self.ledger.check_invariants()
        assert self.ledger.open_count() == self.model.open_count()


TestLedgerAgainstModel = LedgerAgainstModel.TestCase
TestLedgerAgainstModel.settings = settings(stateful_step_count=40)


# ---- the rules one by one, as examples ----------------------------------------------------------

ROOT = root_id(1, 1, 0)
A, B, C = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


@pytest.fixture
def ledger() -> Ledger:
    return Ledger([1])


def u64(*values: int) -> np.ndarray:
    return np.array(values, np.uint64)


def is_complete(settled: SettledTrees, *roots: int) -> bool:
    return settled.complete.tolist() == list(roots) and not len(settled.failed)


def has_failed(settled: SettledTrees, *roots: int) -> bool:
    return settled.failed.tolist() == list(roots) and not len(settled.complete)


def test_start_twice_in_one_report_is_no_false_ack(ledger: Ledger) -> None:
    assert not ledger.start(u64(ROOT, ROOT), u64(A, A))  # A ^ A is 0
    assert is_complete(ledger.ack(u64(ROOT), u64(A)), ROOT)


def test_start_twice_in_two_reports_is_no_false_ack(ledger: Ledger) -> None:
    ledger.start(u64(ROOT), u64(A))
    assert not ledger.start(u64(ROOT), u64(A))


def test_acks_of_one_tree_in_one_report_complete_it_once(ledger: Ledger) -> None:
    ledger.start(u64(ROOT), u64(A ^ B))
    assert is_complete(ledger.ack(u64(ROOT, ROOT), u64(A, B)), ROOT)


def test_failure_reported_twice_fails_once(ledger: Ledger) -> None:
    ledger.start(u64(ROOT), u64(A))
    assert has_failed(ledger.fail(u64(ROOT, ROOT)), ROOT)
    assert not ledger.fail(u64(ROOT))


def test_empty_slot_is_not_generation_zero(ledger: Ledger) -> None:
    wrapped, distant = root_id(1, 0, 5), root_id(1, HALF + 3, 6)
    assert not ledger.start(u64(wrapped, distant), u64(A, B))
    assert is_complete(ledger.ack(u64(wrapped, distant), u64(A, B)), wrapped, distant)


def test_generation_after_the_last_is_newer_than_the_last(ledger: Ledger) -> None:
    last, next_one = root_id(1, GENERATION_MASK, 0), root_id(1, 0, 0)
    ledger.start(u64(last), u64(A))
    ledger.start(u64(next_one), u64(B))
    assert not ledger.ack(u64(last), u64(A)), "the older generation is late"
    assert not ledger.start(u64(last), u64(A)), "and so is its start"
    assert is_complete(ledger.ack(u64(next_one), u64(B)), next_one)


def test_three_generations_in_one_report_leave_the_newest(ledger: Ledger) -> None:
    roots = [root_id(1, generation, 0) for generation in (2, 3, 1)]
    assert not ledger.start(u64(*roots), u64(A, B, C))
    assert is_complete(ledger.ack(u64(*roots), u64(A, B, C)), roots[1])


def test_new_life_of_a_spout_retires_the_table_of_the_old_one(ledger: Ledger) -> None:
    ledger.start(u64(root_id(1, 1, 0)), u64(A))
    ledger.start(u64(root_id(2, 1, 0)), u64(B))
    assert not ledger.ack(u64(root_id(1, 1, 0)), u64(A))
    assert ledger.open_count() == 1
    assert is_complete(ledger.ack(u64(root_id(2, 1, 0)), u64(B)), root_id(2, 1, 0))


def test_slot_costs_sixteen_bytes(ledger: Ledger) -> None:
    ledger.start(u64(root_id(1, 1, 100_000)), u64(A))
    assert ledger.bytes_per_slot() <= 16


def test_time_of_the_last_report_costs_eight_bytes_if_it_is_kept() -> None:
    timed = Ledger([1], timed=True)
    timed.start(u64(root_id(1, 1, 100_000)), u64(A))
    assert 16 < timed.bytes_per_slot() <= 24


def test_age_is_the_time_since_the_last_report_on_this_very_attempt() -> None:
    timed = Ledger([1], timed=True)
    old, new, unknown = root_id(1, 1, 0), root_id(1, 2, 0), root_id(1, 1, 7_000)
    assert timed.ages(u64(old)).tolist() == [np.inf], "no report yet"
    timed.start(u64(old), u64(A))
    timed.now_s = 3.0
    assert timed.ages(u64(old)).tolist() == [3.0]
    timed.start(u64(new), u64(A))
    timed.now_s = 5.0
    timed.ack(u64(old), u64(B))  # late: it is no progress of the newer attempt
    assert timed.ages(u64(new, old, unknown)).tolist() == [2.0, np.inf, np.inf]
    timed.ack(u64(new), u64(B))
    assert timed.ages(u64(new)).tolist() == [0.0]


def test_life_after_the_last_incarnation_retires_the_life_before_it(ledger: Ledger) -> None:
    last, next_one = (root_id(life, 1, 0) for life in (INCARNATIONS_MAX - 1, 0))
    ledger.start(u64(last), u64(A))
    ledger.start(u64(next_one), u64(A))
    assert ledger.open_count() == 1
    assert not ledger.ack(u64(last), u64(A)), "a report from an earlier life"
    assert ledger.ack(u64(next_one), u64(A)).complete.tolist() == [next_one]


def test_shard_without_reports_for_most_of_the_circle_accepts_the_next_life(
    ledger: Ledger,
) -> None:
    ledger.start(u64(root_id(1, 1, 0)), u64(A))
    for life in range(2, 50_000):  # none of them emits anything
        ledger.begin(life)
    ledger.begin(49_000)  # a message that was overtaken
    root = root_id(49_999, 1, 0)
    ledger.start(u64(root), u64(A))
    assert ledger.open_count() == 1
    assert ledger.ack(u64(root), u64(A)).complete.tolist() == [root]


def test_empty_report_changes_nothing(ledger: Ledger) -> None:
    assert not ledger.ack(u64(), u64())
    assert ledger.bytes_per_slot() == 0


def test_corrupt_ledger_is_reported_with_the_evidence(ledger: Ledger) -> None:
    ledger.start(u64(ROOT), u64(A))
    ledger._tables[1].xor[0] = 0
    with pytest.raises(AssertionError, match="complete but still open"):
        ledger.check_invariants()
