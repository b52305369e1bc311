"""Simulates many seeds in several processes, shows the progress, and counts the verdicts."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from multiprocessing import parent_process
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any, Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sunshower.errors import ClusterError, ExperimentError
from sunshower.experiments.event_history import History, to_lines
from sunshower.experiments.experiment import Prepared, carry_out, prepare
from sunshower.experiments.outcome import Finding, Verdict, gravest
from sunshower.experiments.runner.interrupts import Interrupts
from sunshower.experiments.runner.loading import load
from sunshower.experiments.swarm import Pace, Steps, pace_of, shrink, swarm
from sunshower.runtime.garbage import collect_seldom
from sunshower.simulation.cluster import SimCluster
from sunshower.state.sqlite import all_files_in
from sunshower.topologies.topology import Topology

_LINE_EVERY_S = 5.0
_REASONS_MAX = 5
_QUIET_S = 30.0  # without a result: then a line says that the work continues


# ---- seed runs -----------------------------------------------------------------------------------

_LINES_MAX = 120
_ROOT = re.compile(r"\broot ([0-9a-f]{16})")


@dataclass(frozen=True)
class SwarmTask:
    """What is simulated: the same for all seeds."""

    target: str  # FILE.py or FILE.py:NAME
    messages: int | None  # the sources are drained after so many
    folder: str = ""  # of the SQLite files of all runs; "": those that are declared


@dataclass(frozen=True)
class SeedResult:
    """The verdict of one seed."""

    seed: int
    verdict: Verdict
    reason: str  # the first reason of the gravest finding, with its checker


@dataclass(frozen=True)
class ShrunkSeed:
    """The shortest failing run that was found for a seed."""

    seed: int
    findings: tuple[Finding, ...]  # the BROKEN ones
    steps: tuple[str, ...]  # of its plan
    steps_before: int
    messages: int | None  # after which its sources are drained
    tries: int
    history: tuple[str, ...]  # its lines about the failing messages and the faults


def start_job() -> None:
    """Prepare a job process: it prints nothing, ignores Ctrl-C, and ends with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to all; the parent decides
    collect_seldom()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    parent = parent_process()
    assert parent is not None, "a job is a process of its own"

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def run_seed(task: SwarmTask, seed: int) -> SeedResult:
    """Simulate a seed. Raises ExperimentError if the topology cannot be simulated."""
    findings, _ = _findings(_prepared(task, seed))
    verdict = gravest(finding.verdict for finding in findings)
    worst = next(finding for finding in findings if finding.verdict is verdict)
    return SeedResult(seed, verdict, f"{worst.checker}: {worst.reasons[0]}")


def shrink_seed(task: SwarmTask, seed: int) -> ShrunkSeed:
    """Find a short plan for which one of the same checkers fails."""
    prepared = _prepared(task, seed)
    wanted = _broken(_findings(prepared)[0])

    def shortened(steps: Steps, messages: int | None) -> Prepared:
        return _prepared(task, seed).shortened(steps, messages or task.messages)

    def breaks(steps: Steps, messages: int | None) -> bool:
        return bool(_broken(_findings(shortened(steps, messages))[0]) & wanted)

    shrunk = shrink(prepared.steps, breaks, messages=task.messages)
    messages = shrunk.messages or task.messages
    findings, history = _findings(shortened(shrunk.steps, messages))
    left = tuple(finding for finding in findings if finding.verdict is Verdict.BROKEN)
    return ShrunkSeed(
        seed=seed,
        findings=left,
        steps=tuple(map(str, shrunk.steps)),
        steps_before=len(prepared.steps),
        messages=messages,
        tries=shrunk.tries,
        history=tuple(relevant_lines(left, history)) if history else (),
    )


def relevant_lines(findings: tuple[Finding, ...], history: History) -> list[str]:
    """Return the lines of a history about the messages of the findings, and about faults."""
    roots = {
        root for finding in findings for line in finding.evidence for root in _ROOT.findall(line)
    }
    marks = tuple(f'"{root}"' for root in roots)
    lines = [
        line.rstrip("\n")
        for line in to_lines(history)
        if '"fault": ' in line or any(mark in line for mark in marks)
    ]
    if len(lines) > _LINES_MAX:
        lines[_LINES_MAX:] = [f"… and {len(lines) - _LINES_MAX} more lines"]
    return lines


def _topology(task: SwarmTask) -> Topology:
    """Import the topology again for each run, with the modules beside it, so that no run sees what
    an earlier one left in memory or in SQLite files, such as the states of a stream program."""
    if not task.folder:
        return load(task.target).topology
    folder = Path(task.folder, str(os.getpid()))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with all_files_in(folder):
        return load(task.target).topology


@cache
def _pace(task: SwarmTask) -> Pace | None:
    """Measure the sources in a run without faults; None if it does not finish: each seed then
    reports why."""
    if task.messages is None:
        return None
    topology = _topology(task)
    try:
        with SimCluster(0) as cluster:
            return pace_of(lambda: topology, cluster, task.messages)
    except ExperimentError:
        raise
    except Exception:  # a bug of ours, too: every seed is BROKEN then
        return None


def _prepared(task: SwarmTask, seed: int) -> Prepared:
    pace = _pace(task)  # first: it imports the file, too
    topology = _topology(task)
    experiment = swarm(lambda: topology, seed, messages_max=task.messages, pace=pace)
    return prepare(experiment, seed)


def _findings(prepared: Prepared) -> tuple[tuple[Finding, ...], History | None]:
    """Run, and return the checkers' findings; an error of the run is a finding, too."""
    try:
        cluster = SimCluster(prepared.seed, nodes=None, drift=None, check=True)
        outcome, history = carry_out(prepared, cluster)
    except ClusterError as error:
        return (Finding("run", Verdict.UNKNOWN, (str(error),)),), None
    except Exception as error:  # a broken invariant or a bug: nothing else fails in virtual time
        reason = f"{type(error).__name__}: {error}"
        lines = tuple(traceback.format_exc().splitlines())
        return (Finding("no error of our own", Verdict.BROKEN, (reason,), lines),), None
    return outcome.findings, history


def _broken(findings: tuple[Finding, ...]) -> set[str]:
    return {finding.checker for finding in findings if finding.verdict is Verdict.BROKEN}


# ---- job pool ------------------------------------------------------------------------------------

T = TypeVar("T")
HASH_SEED = "PYTHONHASHSEED"


class JobPool:
    """A context manager for `count` processes; at its end they are killed, even if busy.

    Each process calls `start` first. Unless PYTHONHASHSEED is set, all have the same seed for
    string hashes, so that user code iterates over a set in the same order each time.
    """

    def __init__(self, count: int, start: Callable[[], None]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(count, context, start)
        self._had_seed = HASH_SEED in os.environ
        self._before = set(multiprocessing.active_children())
        self.pending: dict[Future[Any], Any] = {}  # unfinished job → its argument

    def __enter__(self) -> Self:
        os.environ.setdefault(HASH_SEED, "0")
        return self

    def each(
        self,
        work: Callable[[Any], T],
        arguments: Iterable[Any],
        quiet: Callable[[list[Any]], None],
        quiet_s: float,
    ) -> Iterator[T]:
        """Yield the results of `work` as they arrive. Raises what a job raises.

        `quiet` is called with the arguments in work whenever no result arrives for `quiet_s`.
        """
        done = SimpleQueue[Future[T]]()
        self.pending = {self._pool.submit(work, argument): argument for argument in arguments}
        for future in list(self.pending):
            future.add_done_callback(done.put)
        while self.pending:
            try:
                future = done.get(timeout=quiet_s)
            except Empty:
                quiet(self.busy())
                continue
            del self.pending[future]
            yield future.result()

    def busy(self) -> list[Any]:
        return [argument for future, argument in self.pending.items() if future.running()]

    def __exit__(self, *error: object) -> None:
        if not self._had_seed:
            del os.environ[HASH_SEED]
        children = set(multiprocessing.active_children()) - self._before
        for child in children:
            child.kill()
        # The pool's thread must end before the interpreter does, which would find closed files.
        self._pool.shutdown(wait=True, cancel_futures=True)
        for child in children:
            child.join()


def restart_with_hash_seed() -> None:
    """Replace this process by the same command with PYTHONHASHSEED=0, unless that is set.

    Python reads the seed at its start only. Does not return if the process is replaced.
    """
    if HASH_SEED not in os.environ:
        environment = {**os.environ, HASH_SEED: "0"}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606


# ---- seed search ---------------------------------------------------------------------------------


@dataclass
class Tally:
    """The verdicts of the seeds so far."""

    jobs: int
    seconds: float = 0.0  # wall-clock time
    failing: list[int] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)  # of the UNKNOWN ones
    verdicts: Counter[Verdict] = field(default_factory=Counter)

    def add(self, result: SeedResult, seconds: float) -> None:
        """Count one more result, which came after `seconds`."""
        self.verdicts[result.verdict] += 1
        self.seconds = seconds
        if result.verdict is Verdict.BROKEN:
            self.failing = sorted([*self.failing, result.seed])
        elif result.verdict is Verdict.UNKNOWN:
            self.reasons[result.reason] += 1

    @property
    def runs_per_minute_per_core(self) -> float:
        """The average so far, including the start of the processes."""
        minutes = self.seconds / 60 * self.jobs
        return round(self.verdicts.total() / minutes, 1) if minutes else 0.0

    @property
    def holds(self) -> bool:
        """Whether no seed is BROKEN and at least one HOLDS."""
        return not self.failing and self.verdicts[Verdict.HOLDS] > 0

    def to_fields(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "seeds": self.verdicts.total(),
            "holds": self.verdicts[Verdict.HOLDS],
            "broken": self.verdicts[Verdict.BROKEN],
            "unknown": self.verdicts[Verdict.UNKNOWN],
            "seconds": round(self.seconds, 3),
            "runs_per_minute_per_core": self.runs_per_minute_per_core,
            "failing": self.failing,
        }

    def __str__(self) -> str:
        counts = ", ".join(f"{self.verdicts[verdict]:,} {verdict}" for verdict in Verdict)
        rate = f"{self.runs_per_minute_per_core:,.0f} runs a minute on each of {self.jobs}"
        cores = "core" if self.jobs == 1 else "cores"
        seeds = f"{(total := self.verdicts.total()):,} seed{'s' * (total != 1)}"
        return f"{seeds} in {self.seconds:,.1f} s: {counts}; {rate} {cores}"

    def unknown_reasons(self) -> Iterator[str]:
        """Yield why seeds are UNKNOWN, the most frequent reasons first."""
        for reason, count in self.reasons.most_common(_REASONS_MAX):
            yield f"{count:,} UNKNOWN: {reason}"


@dataclass(frozen=True)
class SearchResult:
    """The verdicts of a search, and the shrunk first failure."""

    tally: Tally
    shrunk: ShrunkSeed | None  # of the first seed that fails
    busy: Sequence[int] | None  # the seeds that were being simulated at an interrupt


def simulate_seeds(
    task: SwarmTask, seeds: Sequence[int], jobs: int, console: Console
) -> SearchResult:
    """Simulate each seed. All processes have ended when it returns or raises.

    An interrupt ends the search early, without an error. Raises ExperimentError if the topology
    cannot be simulated.
    """
    tally, shrunk = Tally(jobs), None
    with (
        TemporaryDirectory(prefix="sunshower-simulate-", ignore_cleanup_errors=True) as folder,
        JobPool(jobs, start_job) as pool,
        Interrupts(),
        _Progress(console, len(seeds)) as progress,
    ):
        task = replace(task, folder=folder)
        begun_s = time.monotonic()
        try:
            for result in pool.each(partial(run_seed, task), seeds, progress.wait, _QUIET_S):
                tally.add(result, time.monotonic() - begun_s)
                if [result.seed] == tally.failing:  # the first failure
                    progress.say(f"Seed {result.seed} is BROKEN: {result.reason}")
                progress.see(tally)
            if tally.failing:
                progress.say(
                    f"Seed {tally.failing[0]} fails. Looking for the shortest failing run …"
                )
                job = partial(shrink_seed, task)
                shrunk = next(pool.each(job, tally.failing[:1], progress.search, _QUIET_S))
        except KeyboardInterrupt:
            return SearchResult(tally, shrunk, pool.busy())
    return SearchResult(tally, shrunk, None)


class _Progress:
    """A progress bar on a terminal; elsewhere a line every few seconds."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._bar = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total)
        self._due_s = time.monotonic()

    def __enter__(self) -> _Progress:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def see(self, tally: Tally) -> None:
        done = tally.verdicts.total()
        broken, unknown = tally.verdicts[Verdict.BROKEN], tally.verdicts[Verdict.UNKNOWN]
        words = f"{broken} broken, {unknown} unknown, {tally.runs_per_minute_per_core:,.0f}/min"
        self._bar.update(self._task, completed=done, description=words)
        if not self._console.is_terminal and time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + _LINE_EVERY_S
            self.say(f"{tally} …")

    def wait(self, seeds: Sequence[int]) -> None:
        self.say(f"Still simulating: {_named(seeds)} …")

    def search(self, seeds: Sequence[int]) -> None:
        self.say(f"Still looking for the shortest failing run of {_named(seeds)} …")

    def say(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True, markup=False)


def _named(seeds: Sequence[int]) -> str:
    return f"seed{'s' * (len(seeds) != 1)} {', '.join(map(str, seeds))}"
