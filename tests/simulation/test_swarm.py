"""Tests of random faults: nothing is lost, and trees complete only when all is written."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from sunshower.runtime.events.event_log import What
from sunshower.runtime.worker import Worker
from tests.runtime.recorded import Recorded
from tests.seeds import seeds
from tests.simulation.swarm import TOTAL, digest, run_with_faults


@seeds(60)
def test_with_random_faults_all_is_written_and_nothing_is_complete_before(seed: int) -> None:
    run = run_with_faults(seed)
    assert run.wait(600.0), f"seed {seed}: it does not end\n{run._describe()}"
    written_s: dict[int, float] = {}
    for entry in run.history():
        if entry.what is What.WROTE:
            written_s.setdefault(entry.detail[0], entry.at_s)
    assert set(written_s) == set(range(TOTAL)), f"seed {seed}: something is lost"
    for entry in (e for e in run.history() if e.what is What.COMPLETED):
        early = [n for n in entry.values.tolist() if written_s[n] > entry.at_s]
        assert not early, f"seed {seed}: {early} were complete before they were written"
    history = Recorded(run.history())
    history.check_shapes()
    complete = history.replay()
    emitted = {row.value for row in history.rows(What.COMPLETED) if row.root in complete}
    assert emitted == set(range(TOTAL)), f"seed {seed}: ackers completed trees too early"


def test_the_same_seed_is_the_same_history() -> None:
    digests = []
    for _ in range(2):
        run = run_with_faults(3)
        run.wait(600.0)
        digests.append(digest(run))
    assert digests[0] == digests[1]
    other = run_with_faults(4)
    other.wait(600.0)
    assert digest(other) != digests[0]


def test_the_same_seed_is_the_same_history_in_every_process() -> None:
    seeds = [str(seed) for seed in range(2)]
    printed = []
    for hash_seed in ("0", "4711"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation.swarm", *seeds],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        printed.append(done.stdout.split())
    assert printed[0] == printed[1]
    assert len(set(printed[0])) == len(seeds)


def test_a_pulse_changes_exactly_when_the_reported_statistics_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: dict[Worker, list[tuple[object, object]]] = {}
    pulse_of = Worker.pulse

    def record_pulse(worker: Worker) -> tuple[object, ...]:
        pulse, stats = pulse_of(worker), worker.stats()
        tasks = [(task.counts, task.done, task.health) for task in stats.tasks]
        seen.setdefault(worker, []).append((pulse, (tasks, stats.idle, stats.at_rest)))
        return pulse

    monkeypatch.setattr(Worker, "pulse", record_pulse)
    for seed in range(4):
        run_with_faults(seed).wait(600.0)
    changes = 0
    for pulses in seen.values():
        for (pulse, reported), (next_pulse, next_reported) in pairwise(pulses):
            assert (pulse == next_pulse) is (reported == next_reported)
            changes += pulse != next_pulse
    assert 100 < changes < sum(map(len, seen.values())) / 2, "most pulses are unchanged"


def test_faults_of_all_kinds_have_effects() -> None:
    missing, restarts = {"actor died", "bad frame", "exception"}, 0
    for seed in (0, 5, 18, *range(40)):  # the first three are chosen to have all causes
        run = run_with_faults(seed)
        run.wait(600.0)
        missing -= set(run.snapshot().component("numbers").causes)
        restarts += run.snapshot().restarts
        if not missing and restarts > 5:
            return
    pytest.fail(f"never felt: {missing}; {restarts} restarts")
