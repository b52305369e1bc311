"""Runs the entries of a comparison in turn, in rounds, and collects their samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks import machine
from benchmarks.figures import Key, Ratio, Series


class BenchmarkError(Exception):
    """A run failed or had wrong results, so it has no figure."""


class MissingRequirement(BenchmarkError):
    """This machine lacks a requirement of a benchmark or a peer, which is therefore skipped."""


@dataclass(frozen=True)
class Sample:
    """One figure, the number of cores that its processes kept busy, and further figures."""

    value: float
    cores: float | None = None
    more: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """The times and the work of a run, or of one of its processes."""

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
        """Returns itself. Raises BenchmarkError if the work was not `done`."""
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
    """A system in a comparison. `run` makes a complete run, from its start to its end.

    `setup`: the configuration of the system, if it was selected by trials.
    """

    key: Key
    run: Callable[[], Sample]
    setup: str = ""


@dataclass(frozen=True)
class Comparison:
    """Entries that run in the same rounds, and their ratios. `rounds`: at most this number."""

    name: str
    entries: Sequence[Entry]
    ratios: Sequence[Ratio] = ()
    rounds: int | None = None


Log = Callable[[str], None]


def available(makers: Mapping[str, Callable[[], Entry]], log: Log) -> dict[str, Entry]:
    """The entries of the peers that can run here. For each other peer the reason is logged."""
    results = {}
    for name, make in makers.items():
        try:
            results[name] = make()
        except MissingRequirement as error:
            log(f"{name} is skipped: {error}")
    return results


@dataclass(frozen=True)
class ComparisonResults:
    """The results of a comparison. `failures`: name of the entry → error.

    Skipped entries (MissingRequirement) are in neither.
    """

    series: Sequence[Series]
    failures: Mapping[str, str]


def run_comparison(
    comparison: Comparison, rounds: int, patience_s: float, log: Log
) -> ComparisonResults:
    """Run every entry once in each round, in turn: A B C, A B C.

    An entry that raises an exception has no series, and does not run again.
    """
    samples: dict[Key, list[Sample]] = {entry.key: [] for entry in comparison.entries}
    others: dict[Key, list[float]] = {entry.key: [] for entry in comparison.entries}
    failures: dict[str, str] = {}
    skipped: set[Key] = set()
    rounds = min(rounds, comparison.rounds or rounds)
    runs = rounds * len(comparison.entries)
    for turn in range(runs):
        entry = comparison.entries[turn % len(comparison.entries)]
        key = entry.key
        if key in skipped or key.name in failures:
            continue
        busy = machine.wait_until_idle(patience_s)
        number = turn // len(comparison.entries) + 1
        prefix = f"{comparison.name} {turn + 1}/{runs}, round {number}/{rounds}"
        try:
            sample = entry.run()
        except MissingRequirement as error:
            skipped.add(key)
            log(f"{prefix}: {key.name} is skipped: {error}")
            continue
        except Exception as error:
            failures[key.name] = f"{type(error).__name__}: {error}"
            log(f"{prefix}: {key.name} has failed, and is omitted: {failures[key.name]}")
            continue
        samples[key].append(sample)
        others[key].append(busy)
        log(f"{prefix}: {key.name} {sample.value:,.3g} {key.unit}")
    whole = [
        entry
        for entry in comparison.entries
        if entry.key not in skipped and entry.key.name not in failures
    ]
    return ComparisonResults(
        [_series(entry, samples[entry.key], others[entry.key]) for entry in whole], failures
    )


def _series(entry: Entry, samples: Sequence[Sample], others: Sequence[float]) -> Series:
    cores = [sample.cores for sample in samples if sample.cores is not None]
    more = {name: median(sample.more[name] for sample in samples) for name in samples[0].more}
    more["others"] = median(others)
    if cores:
        more["cores"] = median(cores)
    return Series(entry.key, [sample.value for sample in samples], more, entry.setup)
