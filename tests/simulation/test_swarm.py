"""Random faults of all kinds: no tuple is lost, and no tree is complete before all is written."""

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
from tests.simulation.swarm import TOTAL, digest, hurt


@seeds(60)
def test_whatever_happens_all_is_written_down_and_nothing_is_acked_before(seed: int) -> None:
    run = hurt(seed)
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
        run = hurt(3)
        run.wait(600.0)
        digests.append(digest(run))
    assert digests[0] == digests[1]
    other = hurt(4)
    other.wait(600.0)
    assert digest(other) != digests[0]


def test_the_same_seed_is_the_same_history_in_every_process() -> None:
    seeds = [str(seed) for seed in range(2)]
    said = []
    for hash_seed in ("0", "4711"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation.swarm", *seeds],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        said.append(done.stdout.split())
    assert said[0] == said[1]
    assert len(set(said[0])) == len(seeds)


def test_a_pulse_changes_with_what_the_master_is_told_and_with_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: dict[Worker, list[tuple[object, object]]] = {}
    pulse_of = Worker.pulse

    def noted(worker: Worker) -> tuple[object, ...]:
        pulse, stats = pulse_of(worker), worker.stats()
        tasks = [(task.counts, task.done, task.health) for task in stats.tasks]
        seen.setdefault(worker, []).append((pulse, (tasks, stats.idle, stats.at_rest)))
        return pulse

    monkeypatch.setattr(Worker, "pulse", noted)
    for seed in range(4):
        hurt(seed).wait(600.0)
    changes = 0
    for looks in seen.values():
        for (pulse, told), (next_pulse, next_told) in pairwise(looks):
            assert (pulse == next_pulse) is (told == next_told)
            changes += pulse != next_pulse
    assert 100 < changes < sum(map(len, seen.values())) / 2, "most pulses are unchanged"


def test_faults_of_all_kinds_are_felt() -> None:
    missing, restarts = {"actor died", "bad frame", "exception"}, 0
    for seed in (0, 5, 18, *range(40)):  # the first three are chosen to have all causes
        run = hurt(seed)
        run.wait(600.0)
        missing -= set(run.snapshot().component("numbers").causes)
        restarts += run.snapshot().restarts
        if not missing and restarts > 5:
            return
    pytest.fail(f"never felt: {missing}; {restarts} restarts")
