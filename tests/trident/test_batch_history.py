"""The history of a run contains the outcome of each attempt of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from sunshower import Context, Topology
from sunshower.config import Internals
from sunshower.errors import ClusterError
from sunshower.experiments.event_history import History, from_lines, to_lines
from sunshower.experiments.outcome import BatchAttempt, batch_figures, batches_of
from sunshower.experiments.report.drawing import make_series
from sunshower.runtime.events.event_log import What
from sunshower.simulation.cluster import SimCluster, SimRun
from sunshower.state import MemoryState
from sunshower.trident import FixedBatchSpout, InMemory, Skip, batches, count
from tests.experiments.scripts import Script


def whole(row: Sequence[int]) -> bool:
    return len(row) == 1


class Odd:
    """Raises once, for the row 6."""

    def prepare(self, context: Context) -> None:
        self.raised = False

    def __call__(self, row: Sequence[int]) -> bool:
        if row[0] == 6 and not self.raised:
            self.raised = True
            raise ValueError("that is odd")
        return True


def program(predicate: Any, **options: Any) -> SimRun:
    topology = Topology("t", internals=Internals(sweep_grace_s=0.2, restart_backoff_s=0.05))
    spout = FixedBatchSpout([(n,) for n in range(10)], 4, fields=("n",))
    rows = batches(topology, "rows", spout, store=InMemory(), **options)
    rows.filter(predicate).aggregate(count(), state=MemoryState())
    return SimCluster(3, check=True).submit(topology.graph(), sample=1)


def history_of(run: SimRun) -> History:
    return History(run.history(), run.plan.task_names)


def ends(attempts: Sequence[BatchAttempt]) -> list[tuple[int, int, int, str]]:
    named = {True: "committed", False: ""}
    return [
        (batch.txid, batch.attempt, batch.rows, batch.why or named[batch.committed_s is not None])
        for batch in attempts
    ]


def test_a_failed_attempt_has_its_cause_and_the_next_one_commits() -> None:
    run = program(Odd())
    assert run.wait(60.0)
    history = history_of(run)
    attempts = batches_of(history)
    odd = "exception in rows[0]: ValueError: that is odd (step `Odd.__call__`)"
    assert ends(attempts[:4]) == [
        (1, 0, 4, "committed"),
        (2, 0, 0, odd),  # it failed before all of it was emitted
        (2, 1, 4, "committed"),
        (3, 0, 2, "committed"),
    ]
    for attempt in attempts:
        if attempt.committed_s is not None:
            assert attempt.processed_s is not None
            assert attempt.begun_s <= attempt.processed_s <= attempt.committed_s
    figures = batch_figures(history)
    assert figures["batches committed"] == figures["batch attempts"] - 1
    assert figures["batch attempts failed"] == 1
    assert 0 < figures["batch_p50_s"] <= figures["batch_p99_s"]
    again = batches_of(from_lines(to_lines(history)))
    assert ends(again) == ends(attempts)
    assert [batch.begun_s for batch in again] == [round(batch.begun_s, 6) for batch in attempts]


def test_a_skipped_batch_is_in_the_history_with_its_failed_attempts(tmp_path: Any) -> None:
    def never(row: Sequence[int]) -> bool:
        if row[0] == 6:
            raise ValueError("that is odd")
        return True

    run = program(never, skip=Skip(attempts=2, dead_letters=tmp_path / "dead.jsonl"))
    assert run.wait(60.0)
    noted = [e.detail for e in run.history() if e.what is What.NOTED]
    skipped = [
        facts["txid"] for event, facts in noted if event == "batch committed" and facts["skipped"]
    ]
    assert skipped == [2]
    failed = [batch.attempt for batch in batches_of(history_of(run)) if batch.failed_s is not None]
    assert failed == [0, 1]
    run.stop()


@pytest.mark.parametrize("seed", range(4))
def test_each_batch_commits_once_when_workers_are_killed(seed: int) -> None:
    run = program(whole, max_batches=2, interval_s=0.3)
    for killed in range(2):
        run.wait(0.3 + 0.1 * seed)
        with suppress(ClusterError):  # it has just died
            run.kill_worker(run.plan.workers[(seed + killed) % len(run.plan.workers)])
    assert run.wait(300.0)
    committed = [
        batch.txid for batch in batches_of(history_of(run)) if batch.committed_s is not None
    ]
    assert committed == sorted(set(committed))
    assert committed[:3] == [1, 2, 3]


def test_a_run_without_batches_has_no_figures_of_them() -> None:
    history = Script().whole(0).history()
    assert batches_of(history) == []
    assert batch_figures(history) == {}
    assert not make_series(history).batches_per_s.any()


def test_batches_are_in_the_series_of_a_report() -> None:
    script = Script()
    for txid in range(1, 11):
        facts = {"txid": txid, "attempt": 0, "epoch": 1}
        script.add(What.NOTED, 1, detail=("batch begun", facts)).wait(0.5)
        script.add(What.NOTED, 1, detail=("batch committed", facts))
    series = make_series(script.history())
    bins_s = series.edges_s[1:] - series.edges_s[:-1]
    assert (series.batches_per_s * bins_s).sum() == pytest.approx(10)
