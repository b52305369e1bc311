"""An acker sends each spout task the verdicts on its own trees, with the reason of each failure."""

from __future__ import annotations

import numpy as np
import pytest

from sunshower.failures import Cause, Failure
from sunshower.runtime.tracking import ledger
from sunshower.runtime.tracking.ids import U64
from sunshower.runtime.tracking.ledger import AckerTask
from sunshower.runtime.tracking.reports import ShardReport

A, B = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9
WHY = Failure(Cause.FAILED, "split", 1, "no such word")


def root(incarnation: int, slot: int = 0) -> int:
    return incarnation << 48 | 1 << 24 | slot


def pair(roots: list[int], xors: list[int]) -> list[tuple[U64, U64]]:
    return [(np.array(roots, np.uint64), np.array(xors, np.uint64))]


@pytest.fixture
def acker() -> AckerTask:
    return AckerTask(9, [1, 1])


def test_verdict_goes_to_the_spout_whose_incarnation_the_root_has(acker: AckerTask) -> None:
    roots = [root(2), root(3), root(2, 1)]
    verdicts = acker.apply(ShardReport(pair(roots, [A, B, A]), pair(roots, [A, B, A])), 0.0)
    complete = {spout: np.concatenate(v.complete).tolist() for spout, v in verdicts.items()}
    assert complete == {0: [root(2), root(2, 1)], 1: [root(3)]}


def test_first_reason_counts(acker: AckerTask) -> None:
    later = Failure(Cause.BAD_FRAME)
    report = ShardReport(pair([root(2)], [A]), fails=[(root(2), WHY), (root(2), later)])
    assert acker.apply(report, 0.0)[0].failed == [(root(2), WHY)]


def test_more_failures_at_once_than_are_kept_all_have_their_reason(
    acker: AckerTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_REASONS_MAX", 5)
    roots = [root(2, slot) for slot in range(50)]
    acker.apply(ShardReport(starts=pair(roots, [A] * 50)), 0.0)
    verdicts = acker.apply(ShardReport(fails=[(tree, WHY) for tree in roots]), 0.0)
    assert dict(verdicts[0].failed) == dict.fromkeys(roots, WHY)


def test_reasons_of_trees_that_never_start_do_not_pile_up(
    acker: AckerTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_REASONS_MAX", 5)
    for slot in range(50):
        acker.apply(ShardReport(fails=[(root(2, slot), WHY)]), 0.0)
    assert len(acker._reasons) <= 5
    verdicts = acker.apply(ShardReport(starts=pair([root(2, 0)], [A])), 0.0)
    assert verdicts[0].failed == [(root(2, 0), Failure(Cause.FAILED))], "failed, reason forgotten"
