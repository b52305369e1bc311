"""Tests of `sunshower simulate`: many seeds in several processes, and shrinking."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar

import pytest
from rich.console import Console

from sunshower.experiments.checkers import CheckResult
from sunshower.experiments.event_history import History
from sunshower.experiments.outcome import Facts, Verdict
from sunshower.experiments.runner.seed_search import (
    JobPool,
    SeedResult,
    ShrunkSeed,
    SwarmTask,
    Tally,
    run_seed,
    shrink_seed,
    simulate_seeds,
)
from sunshower.simulation.cluster import SimCluster, SimRun
from tests.cli.conftest import Start, Write, read_until, signal_like_a_terminal
from tests.conftest import Sunshower
from tests.guarantee.deaths import until
from tests.structure.reading import ROOT

Capture = pytest.CaptureFixture[str]
KEYS = ["seeds", "holds", "broken", "unknown", "seconds", "runs_per_minute_per_core", "failing"]
NUMBERS = """
    import os
    from pathlib import Path

    def show(number: Number) -> None:
        print("noise of", number)

    topology = Topology("shown", message_timeout_s=5)
    topology.spout("numbers", Counter(40)).shuffle().bolt("show", show, parallelism=2)
    with (Path(__file__).parent / "hashes").open("a") as file:
        file.write(os.environ.get("PYTHONHASHSEED", "none") + " ")
"""


# ---- the tally ----------------------------------------------------------------------------------


def tally(*verdicts: Verdict) -> Tally:
    counted = Tally(jobs=2)
    for seed, verdict in enumerate(verdicts):
        counted.add(SeedResult(seed, verdict, f"why {verdict}"), seconds=30.0)
    return counted


def test_the_tally_counts_each_verdict() -> None:
    counted = tally(Verdict.HOLDS, Verdict.HOLDS, Verdict.BROKEN, Verdict.UNKNOWN)
    fields = counted.to_fields()
    assert list(fields) == KEYS
    assert list(fields.values()) == [4, 2, 1, 1, 30.0, 4.0, [2]]
    assert list(counted.unknown_reasons()) == ["1 UNKNOWN: why UNKNOWN"]


@pytest.mark.parametrize(
    ("verdicts", "holds"),
    [
        ([Verdict.HOLDS, Verdict.UNKNOWN], True),
        ([Verdict.HOLDS, Verdict.BROKEN], False),
        ([Verdict.UNKNOWN], False),
        ([], False),
    ],
)
def test_the_tally_holds_if_one_seed_holds_and_none_is_broken(
    verdicts: list[Verdict], holds: bool
) -> None:
    assert tally(*verdicts).holds is holds


@dataclass
class Pool:
    """A job pool that returns the given verdicts; it calls `quiet` before the first."""

    verdicts: list[Verdict]

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def each(self, work: Any, seeds: Any, quiet: Any, quiet_s: float) -> Iterator[Any]:
        quiet(list(seeds)[:2])
        if work.func is shrink_seed:
            yield ShrunkSeed(seeds[0], (), (), 3, 20, 7, ())
            return
        for seed, verdict in zip(seeds, self.verdicts, strict=True):
            yield SeedResult(seed, verdict, f"why {verdict}")


def test_long_work_is_reported_and_the_first_broken_seed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    verdicts = [Verdict.HOLDS, Verdict.BROKEN, Verdict.BROKEN]
    monkeypatch.setattr(
        "sunshower.experiments.runner.seed_search.JobPool", lambda *_: Pool(verdicts)
    )
    console = Console(file=StringIO(), width=200)
    ended = simulate_seeds(SwarmTask("x.py", 20), range(5, 8), 2, console)
    assert ended.tally.failing == [6, 7]
    file = console.file
    assert isinstance(file, StringIO)
    lines = [line for line in file.getvalue().splitlines() if " HOLDS, " not in line]
    assert lines == [
        "Still simulating: seeds 5, 6 …",
        "Seed 6 is BROKEN: why BROKEN",
        "Seed 6 fails. Looking for the shortest failing run …",
        "Still looking for the shortest failing run of seed 6 …",
    ]


def test_a_pool_reports_the_running_jobs(tmp_path: Path) -> None:
    files, running = [f"{tmp_path / name}" for name in "ab"], set[str]()

    def report(busy: list[str]) -> None:
        running.update(busy)
        for file in busy:
            Path(file).touch()

    with JobPool(1, _nothing) as jobs:
        assert sorted(jobs.each(_wait_for, files, report, 0.01)) == files
    assert running == {*files}


def _nothing() -> None:
    """The processes need no preparation."""


def _wait_for(file: str) -> str:
    until(Path(file).exists)
    return file


# ---- one seed -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fragile:
    """A checker that reports BROKEN if a worker of `show` was killed."""

    name: ClassVar[str] = "fragile"

    def check(self, history: History, facts: Facts) -> CheckResult:
        killed = any(fault.words.startswith("kill show") for fault in history.faults)
        evidence = [f"attempt 1, root {root:016x}" for root in _roots(history)[:1]]
        return CheckResult("fine", ["it was killed"] if killed else (), (), evidence)


def _roots(history: History) -> list[int]:
    roots: list[int] = next(iter(history.entries)).roots.tolist()
    return roots


@pytest.fixture
def fragile(monkeypatch: pytest.MonkeyPatch) -> None:
    swarm = import_module("sunshower.experiments.swarm")  # the package has a function of that name
    monkeypatch.setattr(swarm, "generic", lambda: (Fragile(),))


def first_broken(task: SwarmTask) -> int:
    return next(n for n in range(100) if run_seed(task, n).verdict is Verdict.BROKEN)


@pytest.mark.usefixtures("fragile")
def test_a_failing_seed_is_shrunk_to_fewer_steps(write: Write) -> None:
    task = SwarmTask(str(write(NUMBERS)), messages=40)
    shrunk = shrink_seed(task, first_broken(task))
    assert [finding.checker for finding in shrunk.findings] == ["fragile"]
    assert 0 < len(shrunk.steps) < shrunk.steps_before
    assert "kill" in shrunk.steps[-1]
    assert any('"what": "begun", "fault": "kill show' in line for line in shrunk.history)


def test_the_same_seed_has_the_same_result(write: Write) -> None:
    task = SwarmTask(str(write(NUMBERS)), messages=20)
    assert run_seed(task, 0) == run_seed(task, 0) != run_seed(task, 1)


def test_a_crash_of_the_core_is_broken_and_its_evidence_names_the_place(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def receive(*_: object) -> None:
        raise KeyError("no such task")

    monkeypatch.setattr("sunshower.runtime.worker.Worker.receive", receive)
    task = SwarmTask(str(write(NUMBERS)), messages=20)
    seed = next(n for n in range(5) if run_seed(task, n).verdict is Verdict.BROKEN)
    assert run_seed(task, seed).reason == "no error of our own: KeyError: 'no such task'"
    (finding,) = shrink_seed(task, seed).findings
    assert any("hit a defect of sunshower itself" in line for line in finding.evidence)


KEPT = """
    from sunshower.state import MemoryState
    from sunshower.trident import InMemory
    state, store = MemoryState(), InMemory()
"""
KEPT_IN_FILES = """
    from sunshower.state import SqliteState
    from sunshower.trident import InSqlite
    state, store = SqliteState("counts.db"), InSqlite("progress.db")
"""
ON_STATES = """
    from pathlib import Path
    from kept import state, store
    from sunshower.trident import FixedBatchSpout, batches, count

    def note(total: tuple[int]) -> None:
        with (Path(__file__).parent / "totals").open("a") as file:
            file.write(f"{total[0]} ")

    topology = Topology("kept", message_timeout_s=5)
    spout = FixedBatchSpout([("a",)] * 12, 4, fields=("w",))
    words = batches(topology, "words", spout, store=store)
    words.aggregate(count(), state=state).peek(note)
"""


@pytest.mark.parametrize("code", [KEPT, KEPT_IN_FILES])
def test_states_are_empty_at_the_start_of_each_seed(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(code, "kept.py")
    (files := tmp_path / "files").mkdir()
    task = SwarmTask(str(write(ON_STATES)), messages=200, folder=str(files))
    totals, paths = tmp_path / "totals", len(sys.path)
    for seed in range(3):
        totals.write_text("")
        assert run_seed(task, seed).verdict is not Verdict.BROKEN
        assert set(totals.read_text().split()) == {"4", "8", "12"}
    assert len(sys.path) <= paths + 1
    assert not list(tmp_path.glob("*.db"))


def test_the_numbers_of_the_example_relay_are_checked() -> None:
    task = SwarmTask(str(ROOT / "examples/simulated_relay.py"), messages=200)
    reason = "at-least-once: each of 150 messages was completed"
    assert reason in {run_seed(task, seed).reason for seed in range(3)}


def test_the_swarm_injects_faults_while_the_topology_has_work() -> None:
    """Also if the source has fewer messages than the task asks for."""
    task = SwarmTask(str(ROOT / "examples/simulated_word_count.py"), messages=200)
    assert {run_seed(task, seed).verdict for seed in range(6)} == {Verdict.HOLDS}


def test_a_swarm_has_seeds_with_several_nodes(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    node_counts: list[int] = []

    class CountingCluster(SimCluster):
        def submit(self, *arguments: Any, **named: Any) -> SimRun:
            run = super().submit(*arguments, **named)
            node_counts.append(len(run.nodes()))
            return run

    monkeypatch.setattr("sunshower.experiments.runner.seed_search.SimCluster", CountingCluster)
    task = SwarmTask(str(write(NUMBERS)), messages=10)
    for seed in range(8):
        run_seed(task, seed)
    assert set(node_counts) == {1, 2, 3}


def test_a_violated_invariant_is_broken(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(*_: object) -> None:
        raise AssertionError("the book is corrupt")

    monkeypatch.setattr("sunshower.runtime.tracking.ledger.Ledger.check_invariants", check)
    result = run_seed(SwarmTask(str(write(NUMBERS)), messages=20), 0)
    assert result.verdict is Verdict.BROKEN
    assert "AssertionError: the book is corrupt" in result.reason


# ---- the command --------------------------------------------------------------------------------


def test_seeds_are_simulated_in_processes_of_their_own(
    write: Write, sunshower: Sunshower, capfd: Capture, tmp_path: Path
) -> None:
    file = write(NUMBERS)
    before = os.environ.copy()
    arguments = ("--seeds", 6, "--first", 3, "--jobs", 2, "--messages", 40)
    status = sunshower("simulate", file, *arguments, "--json")
    printed = capfd.readouterr()
    fields = json.loads(printed.out)  # nothing else: output of user code is suppressed
    assert status == 0, printed
    assert list(fields) == KEYS
    assert fields["seeds"] == 6
    assert fields["broken"] == 0
    assert set((tmp_path / "hashes").read_text().split()) == {"0"}
    assert os.environ.copy() == before


def test_one_seed_can_be_simulated_again(
    write: Write, sunshower: Sunshower, capsys: Capture
) -> None:
    sunshower("simulate", write(NUMBERS), "--seed", 4, "--messages", 20)
    assert capsys.readouterr().out.startswith("1 seed in ")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("number = 3", "has no topology; make one at its top level"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_wrong_file_is_reported_once(
    code: str, message: str, write: Write, sunshower: Sunshower, capfd: Capture
) -> None:
    assert sunshower("simulate", write(code), "--jobs", 2) == 1
    error = capfd.readouterr().err
    assert error.count(message) == 1
    assert "Traceback" not in error


@pytest.mark.parametrize("options", [("--seeds", "0"), ("--jobs", "0"), ("--messages", "-1")])
def test_wrong_options_are_refused(
    options: tuple[str, str], sunshower: Sunshower, capsys: Capture
) -> None:
    assert sunshower("simulate", "x.py", *options) == 2
    assert options[0] in capsys.readouterr().err


# ---- interrupts and kills -----------------------------------------------------------------------


@pytest.fixture
def endless(
    start: Start, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> subprocess.Popen[str]:
    """A command with many seeds, which has just reported the first."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # killed, it leaves its temporary folder
    options = ("--seeds", 100_000, "--jobs", 2, "--messages", 20)
    process = start("simulate", write(NUMBERS), *options)
    read_until(process.stderr, "seeds in")
    return process


@pytest.mark.long
def test_ctrl_c_prints_the_verdicts_so_far(endless: subprocess.Popen[str]) -> None:
    signal_like_a_terminal(endless)
    out, error = endless.communicate(timeout=120)
    assert endless.returncode == 130, error
    assert "seeds in" in out
    assert "Interrupted. These seeds were being simulated:" in error
    assert "Traceback" not in error


@pytest.mark.long
def test_jobs_end_with_a_command_that_was_killed(endless: subprocess.Popen[str]) -> None:
    endless.kill()
    assert endless.wait(timeout=120) == -signal.SIGKILL
