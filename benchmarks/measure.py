"""How a measurement is taken: rounds in which all that are compared run one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks import machine
from benchmarks.figures import Key, Ratio, Series


class BenchmarkError(Exception):
    """A run went wrong, so that there is nothing to compare."""


class MissingRequirement(BenchmarkError):
    """This machine or this user lacks what a benchmark or a peer needs: it is skipped."""


@dataclass(frozen=True)
class Sample:
    """One figure, how many cores its processes were busy on, and what else there is to tell."""

    value: float
    cores: float | None = None
    more: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What one run, or one process of it, has done."""

    begun_s: float
    ended_s: float
    done: int
    cpu_s: float | None = None
    more: Mapping[str, float] = field(default_factory=dict)

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(
            min(self.begun_s, other.begun_s),
            max(self.ended_s, other.ended_s),
            self.done + other.done,
            None if self.cpu_s is None or other.cpu_s is None else self.cpu_s + other.cpu_s,
        )

    def expect(self, done: int) -> Outcome:
        """Raises BenchmarkError if something else was done than should have been."""
        if self.done != done:
            raise BenchmarkError(f"{self.done:,} were done, not {done:,}")
        return self

    def sample(self, per: float) -> Sample:
        """The speed, in units of `per` a second."""
        seconds = self.ended_s - self.begun_s
        cores = None if self.cpu_s is None else self.cpu_s / seconds
        return Sample(self.done / seconds / per, cores, self.more)


@dataclass(frozen=True)
class Entry:
    """One of those that are compared. `run` is a whole run, from a fresh start to the end."""

    key: Key
    run: Callable[[], Sample]


@dataclass(frozen=True)
class Match:
    """What is measured in the same rounds, and the ratios that are asked of it."""

    name: str
    entries: Sequence[Entry]
    ratios: Sequence[Ratio] = ()


Tell = Callable[[str], None]


def play(match: Match, rounds: int, patience_s: float, tell: Tell) -> list[Series]:
    """Run every entry once a round, in turn: A B C, A B C."""
    samples: list[list[Sample]] = [[] for _ in match.entries]
    others: list[list[float]] = [[] for _ in match.entries]
    runs = rounds * len(match.entries)
    for turn in range(runs):
        place = turn % len(match.entries)
        key = match.entries[place].key
        others[place].append(machine.wait_for_quiet(patience_s))
        samples[place].append(match.entries[place].run())
        tell(
            f"{match.name} {turn + 1}/{runs}, round {turn // len(match.entries) + 1}/{rounds}: "
            f"{key.name} {samples[place][-1].value:,.3g} {key.unit}"
        )
    return [
        _series(entry.key, mine, busy)
        for entry, mine, busy in zip(match.entries, samples, others, strict=True)
    ]


def _series(key: Key, samples: Sequence[Sample], others: Sequence[float]) -> Series:
    cores = [sample.cores for sample in samples if sample.cores is not None]
    more = {name: median(sample.more[name] for sample in samples) for name in samples[0].more}
    more["others"] = median(others)
    if cores:
        more["cores"] = median(cores)
    return Series(key, [sample.value for sample in samples], more)
