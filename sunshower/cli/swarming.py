"""Many seeds, shared out among processes: progress while they run, and the tally at the end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sunshower.cli.interrupts import Interrupts
from sunshower.cli.jobs import Jobs
from sunshower.cli.seeds import Fate, Minimum, Task, fate_of, minimum_of, start_job
from sunshower.faults.outcome import Verdict

_LINE_EVERY_S = 5.0
_REASONS_MAX = 5
_QUIET_S = 30.0  # without news, somebody would like to know that there is none


@dataclass
class Tally:
    """What the seeds so far came to."""

    jobs: int
    seconds: float = 0.0  # on the wall
    failing: list[int] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)  # why some are UNKNOWN
    verdicts: Counter[Verdict] = field(default_factory=Counter)

    def add(self, fate: Fate, seconds: float) -> None:
        """One more, known after so many seconds."""
        self.verdicts[fate.verdict] += 1
        self.seconds = seconds
        if fate.verdict is Verdict.BROKEN:
            self.failing = sorted([*self.failing, fate.seed])
        elif fate.verdict is Verdict.UNKNOWN:
            self.reasons[fate.reason] += 1

    @property
    def runs_per_minute_per_core(self) -> float:
        """Of all so far, with the start of the processes."""
        minutes = self.seconds / 60 * self.jobs
        return round(self.verdicts.total() / minutes, 1) if minutes else 0.0

    @property
    def proves(self) -> bool:
        """Whether nothing is BROKEN, and something HOLDS."""
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

    def doubts(self) -> Iterator[str]:
        """Why seeds are UNKNOWN, the most frequent reasons first."""
        for reason, count in self.reasons.most_common(_REASONS_MAX):
            yield f"{count:,} UNKNOWN: {reason}"


@dataclass(frozen=True)
class Ended:
    """How it ended."""

    tally: Tally
    minimum: Minimum | None  # of the first seed that fails
    busy: Sequence[int] | None  # interrupted, while these seeds were being simulated


def simulate_all(task: Task, seeds: Sequence[int], jobs: int, console: Console) -> Ended:
    """Simulate each seed; leaves no process behind, however it ends.

    An interrupt is no error: it ends early. Raises what no seed can be made of.
    """
    tally, minimum = Tally(jobs), None
    with Jobs(jobs, start_job) as pool, Interrupts(), _Progress(console, len(seeds)) as progress:
        begun_s = time.monotonic()
        try:
            for fate in pool.each(partial(fate_of, task), seeds, progress.wait, _QUIET_S):
                tally.add(fate, time.monotonic() - begun_s)
                if [fate.seed] == tally.failing:  # the first of them, as soon as it is known
                    progress.say(f"Seed {fate.seed} is BROKEN: {fate.reason}")
                progress.see(tally)
            if tally.failing:
                progress.say(f"Seed {tally.failing[0]} fails. Looking for the least that does …")
                least = partial(minimum_of, task)
                minimum = next(pool.each(least, tally.failing[:1], progress.search, _QUIET_S))
        except KeyboardInterrupt:
            return Ended(tally, minimum, pool.busy())
    return Ended(tally, minimum, None)


class _Progress:
    """A bar on a terminal; elsewhere a line now and then."""

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
        """Show how things stand."""
        done = tally.verdicts.total()
        broken, unknown = tally.verdicts[Verdict.BROKEN], tally.verdicts[Verdict.UNKNOWN]
        words = f"{broken} broken, {unknown} unknown, {tally.runs_per_minute_per_core:,.0f}/min"
        self._bar.update(self._task, completed=done, description=words)
        if not self._console.is_terminal and time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + _LINE_EVERY_S
            self.say(f"{tally} …")

    def wait(self, seeds: Sequence[int]) -> None:
        """Tell that nothing has come for a while."""
        self.say(f"Still simulating: {_named(seeds)} …")

    def search(self, seeds: Sequence[int]) -> None:
        """Tell that the least has not been found for a while."""
        self.say(f"Still looking for the least that fails of {_named(seeds)} …")

    def say(self, line: str) -> None:
        """A line that stays."""
        self._console.print(line, highlight=False, soft_wrap=True, markup=False)


def _named(seeds: Sequence[int]) -> str:
    return f"seed{'s' * (len(seeds) != 1)} {', '.join(map(str, seeds))}"
