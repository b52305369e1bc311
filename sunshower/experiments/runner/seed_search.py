"""Simulates many seeds in several processes, shows the progress, and counts the verdicts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sunshower.experiments.evidence.outcome import Verdict
from sunshower.experiments.runner.interrupts import Interrupts
from sunshower.experiments.runner.job_pool import JobPool
from sunshower.experiments.runner.seed_runs import (
    SeedResult,
    ShrunkSeed,
    SwarmTask,
    run_seed,
    shrink_seed,
    start_job,
)

_LINE_EVERY_S = 5.0
_REASONS_MAX = 5
_QUIET_S = 30.0  # without a result: then a line says that the work continues


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
        return f"{self.verdicts.total():,} seeds in {self.seconds:,.1f} s: {counts}; {rate} {cores}"

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
    with JobPool(jobs, start_job) as pool, Interrupts(), _Progress(console, len(seeds)) as progress:
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
        """Show the verdicts so far."""
        done = tally.verdicts.total()
        broken, unknown = tally.verdicts[Verdict.BROKEN], tally.verdicts[Verdict.UNKNOWN]
        words = f"{broken} broken, {unknown} unknown, {tally.runs_per_minute_per_core:,.0f}/min"
        self._bar.update(self._task, completed=done, description=words)
        if not self._console.is_terminal and time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + _LINE_EVERY_S
            self.say(f"{tally} …")

    def wait(self, seeds: Sequence[int]) -> None:
        """Print that no result came for a while."""
        self.say(f"Still simulating: {_named(seeds)} …")

    def search(self, seeds: Sequence[int]) -> None:
        """Print that the shrinking continues."""
        self.say(f"Still looking for the shortest failing run of {_named(seeds)} …")

    def say(self, line: str) -> None:
        """Print a line that stays."""
        self._console.print(line, highlight=False, soft_wrap=True, markup=False)


def _named(seeds: Sequence[int]) -> str:
    return f"seed{'s' * (len(seeds) != 1)} {', '.join(map(str, seeds))}"
