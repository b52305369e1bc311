"""The acker beside org.apache.storm.daemon.Acker: the same reports, verdict by verdict."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import xor
from random import Random
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sunshower.failures import Cause, Failure
from sunshower.runtime.tracking.ledger import AckerTask
from sunshower.runtime.tracking.reports import ShardReport
from tests.originals.programs import Program

WHY = Failure(Cause.FAILED, "bolt", 0, "no")
ROOT = 1 << 48 | 1 << 24  # of slot 0; the next ones follow
SIGN = 1 << 63
INIT, ACK, FAIL, TICK = "__ack_init", "__ack_ack", "__ack_fail", "__tick"
Call = list[Any]  # [INIT, tree, value], [ACK, tree, value], [FAIL, tree]
Verdict = tuple[int, str]  # a tree, and ACK or FAIL


def reports_on(trees: int, random: Random) -> list[Call]:
    """The reports on some trees, in any order; a tuple may fail, be acked twice, or get lost."""
    calls = list[Call]()
    for tree in range(trees):
        edges = [random.randrange(1, 1 << 64) for _ in range(random.randrange(5))]
        calls.append([INIT, tree, reduce(xor, edges, 0)])
        for edge in edges:
            end = random.choices([[ACK], [ACK, ACK], [FAIL], []], [16, 1, 1, 1])[0]
            calls += [[ACK, tree, edge] if kind == ACK else [FAIL, tree] for kind in end]
    random.shuffle(calls)
    return calls


def of_storm(storm: Program, calls: Sequence[Call]) -> list[list[Verdict]]:
    """The verdicts of Storm's acker after each report."""

    def signed(value: int) -> int:
        return (value ^ SIGN) - SIGN

    given = [
        [kind, *([tree[0]] if tree else []), *(signed(value) for value in tree[1:])]
        for kind, *tree in calls
    ]
    results = storm.run("Acker", [], [[*call, 7] if call[0] == INIT else call for call in given])
    assert all(result[1:2] in ([], [7]) for result in results), "to the task of the spout"
    return [[(result[2], result[0])] if result else [] for result in results]


def of_ours(calls: Sequence[Call]) -> list[list[Verdict]]:
    """The verdicts of our acker after each report."""
    task, verdicts = AckerTask(9, [1]), list[list[Verdict]]()
    for kind, *tree in calls:
        if kind == FAIL:
            report = ShardReport(fails=[(ROOT + tree[0], WHY)])
        else:
            pair = np.array([ROOT + tree[0]], np.uint64), np.array([tree[1]], np.uint64)
            report = ShardReport(starts=[pair]) if kind == INIT else ShardReport(acks=[pair])
        settled = task.apply(report, 0.0).get(0)
        complete = np.concatenate(settled.complete).tolist() if settled and settled.complete else []
        failed = [root for root, _ in settled.failed] if settled else []
        verdicts.append(
            [(root - ROOT, ACK) for root in complete] + [(root - ROOT, FAIL) for root in failed]
        )
    return verdicts


def first_verdicts(verdicts: Sequence[Sequence[Verdict]]) -> list[list[Verdict]]:
    """Without those on trees that have one already: Storm's ghost entries may have some."""
    settled = set[int]()
    firsts = list[list[Verdict]]()
    for after in verdicts:
        firsts.append([verdict for verdict in after if verdict[0] not in settled])
        settled |= {tree for tree, _ in after}
    return firsts


@given(st.integers(0, 2**32), st.integers(1, 6))
def test_each_report_has_the_same_verdict(storm: Program, seed: int, trees: int) -> None:
    calls = reports_on(trees, Random(seed))
    failed = set[int]()
    expected = list[list[Verdict]]()
    for (kind, tree, *_), verdicts in zip(
        calls, first_verdicts(of_storm(storm, calls)), strict=True
    ):
        # Storm asks for zero before it asks for a failure, which precedes here.
        expected.append([(tree, FAIL) if tree in failed else verdict for verdict in verdicts])
        failed |= {tree} if kind == FAIL else set()
    assert of_ours(calls) == expected


def test_a_failure_before_the_start_of_a_complete_tree(storm: Program) -> None:
    calls: list[Call] = [[ACK, 0, 5], [FAIL, 0], [INIT, 0, 5]]
    assert of_storm(storm, calls) == [[], [], [(0, ACK)]]
    assert of_ours(calls) == [[], [], [(0, FAIL)]]


def test_reports_after_a_failure(storm: Program) -> None:
    calls: list[Call] = [[INIT, 0, 5], [FAIL, 0], [ACK, 0, 5], [FAIL, 0], [INIT, 0, 5]]
    assert of_storm(storm, calls) == [[], [(0, FAIL)], [], [], [(0, ACK)]], "a ghost"
    assert of_ours(calls) == [[], [(0, FAIL)], [], [], []]


def test_a_tree_without_reports_for_three_timeouts(storm: Program) -> None:
    start, end = [[INIT, 0, 5], [INIT, 1, 5]], [[ACK, 0, 5], [ACK, 1, 5]]
    ticks: list[Call] = [[TICK], [TICK], [TICK]]
    verdicts = of_storm(storm, [start[0], *ticks[:2], start[1], ticks[2], *end])
    assert verdicts[-2:] == [[], [(1, ACK)]], "the first one is forgotten"
    assert of_ours([*start, *end])[-2:] == [[(0, ACK)], [(1, ACK)]]
