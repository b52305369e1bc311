"""Outages, doubt, poison and kills together in the simulator: what must hold for one seed.

A seed draws a topology of a spout and one to three bolts, which components are unavailable, when
and for how long (0.1 s to two hours of virtual time), other faults (kills, rebalances), whether
there are dead letters, and which records are poison. No record may be lost; none but the poison may
be charged or become a dead letter. The topology may not fail, and all records must be acked soon
after the last outage.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from sunshower import Bolt, Collector, Context, DeadLetter, Retry, Topology, Tuple
from sunshower.config import Internals
from sunshower.errors import Unavailable
from sunshower.experiments.checkers import (
    AtLeastOnce,
    Checker,
    EachEdgeOnce,
    Liveness,
    NoneTimedOut,
    NoPrematureAck,
    NothingCharged,
)
from sunshower.experiments.experiment import Experiment, Item, numbers, run_experiment
from sunshower.experiments.fault_kinds import away, component, kill, master, outage, worker
from sunshower.experiments.fault_plan import Step, rebalance
from sunshower.experiments.outcome import Outcome, Verdict
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster

AWAY_S = (0.1, 7_200.0)
RECOVERY_S = 30.0  # from the end of the last fault, in addition to normal work
WORK_S = 15.0  # the attempts of poison with their back-offs, and the rest of the source
POISON_S = 130.0  # two minutes of doubt, if only poison is left after an outage
DOUBT_MAX_S = 500.0  # doubt ends a topology after ten minutes
_SOURCE_S = 6.0
_IDLE_POLL_S = 1.0  # a source that is unavailable for two hours is polled 7,200 times
_BEGUN_S = 2.0  # by then every component has succeeded; earlier failures would not be doubt
_TOO_LATE = ("was finished before", "is rebalancing")  # a fault that could not be injected
_DOUBTED_S = 4.0  # by then ten inputs of each task have failed; other outages begin later


class ClientLibraryError(Exception):
    """An error of a client that sunshower does not know: it is in Retry(unavailable=…)."""


def _locked() -> Exception:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = 5
    return error


OUTAGES: Mapping[str, Callable[[], Exception]] = {
    "refused": lambda: ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
    "disk full": lambda: OSError(errno.ENOSPC, "No space left on device"),
    "unreachable": lambda: TimeoutError(errno.ETIMEDOUT, "timed out"),
    "locked": _locked,
    "unavailable": lambda: Unavailable("the service fails over"),
    "listed": lambda: ClientLibraryError("try later"),
}
DOUBTS: Mapping[str, Callable[[], Exception]] = {
    "runtime": lambda: RuntimeError("something is wrong with the service"),
    "file": lambda: FileNotFoundError(errno.ENOENT, "no such file"),
    "value": lambda: ValueError("the service answers nonsense"),
}


class Dependency:
    """The dependency of one component. All simulated processes share it."""

    def __init__(self) -> None:
        self.down = 0  # the number of current outages
        self.error: Callable[[], Exception] = OUTAGES["refused"]

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def take_down(self, error: Callable[[], Exception]) -> None:
        """Begin an outage: `ask` raises this error."""
        self.down, self.error = self.down + 1, error

    def bring_back(self) -> None:
        """End one outage."""
        self.down -= 1

    def ask(self) -> None:
        """Raise the error if there is an outage."""
        if self.down:
            raise self.error()


class Dependent(Bolt[Item, Item]):
    """Asks its dependency in the calls `asks` (prepare, process, flush, tick). Raises on poison."""

    tick_s = 0.5

    def __init__(
        self, dependency: Dependency, asks: frozenset[str], poison: frozenset[int], *, sink: bool
    ) -> None:
        self.dependency, self.asks, self.poison, self.sink = dependency, asks, poison, sink

    def prepare(self, context: Context) -> None:
        self._context = context
        self._ask("prepare")

    def work(self, record: Item) -> list[Item]:
        """The outputs of an input."""
        self._ask("process")
        if record.number in self.poison:
            raise ValueError(f"{record.number} is poison")
        if self.sink:
            self._context.wrote(record.number)
        return [] if self.sink else [record]

    def flush(self) -> None:
        self._ask("flush")

    def tick(self) -> None:
        self._ask("tick")

    def snapshot(self) -> None:
        """It has no state."""

    def restore(self, state: None) -> None:
        """It has no state."""

    def _ask(self, where: str) -> None:
        if where in self.asks:
            self.dependency.ask()


class ProcessClient(Dependent):
    """Yields its outputs."""

    def process(self, record: Item) -> Iterator[Item]:
        yield from self.work(record)


class ExecuteClient(Dependent):
    """Emits its outputs with anchors, and acks."""

    def execute(self, tuple: Tuple[Item], out: Collector[Item]) -> None:
        for item in self.work(tuple.record):
            out.emit(item, tuple)
        out.ack(tuple)


class DiscardLetters(Bolt[DeadLetter, None]):
    """Discards dead letters."""

    def process(self, record: DeadLetter) -> None:
        del record

    def snapshot(self) -> None:
        """It has no state."""

    def restore(self, state: None) -> None:
        """It has no state."""


@dataclass
class Day:
    """What a seed draws: a topology and its faults."""

    seed: int
    rng: np.random.Generator
    total: int
    poison: frozenset[int]
    letters: bool
    doubts: bool
    layout: Layout
    parallelism: dict[str, int]
    asks: dict[str, frozenset[str]]
    by_hand: frozenset[str]
    dependencies: dict[str, Dependency] = field(default_factory=dict)

    @property
    def bolts(self) -> list[str]:
        """The bolts, upstream first."""
        return list(self.asks)

    def topology(self) -> Topology:
        """The topology."""
        config = {"workers": 1 + self.seed % 3, "ackers": 1 + self.seed % 2}
        topology = Topology(
            f"day-{self.seed}", internals=Internals(idle_poll_s=_IDLE_POLL_S), **config
        )
        source = numbers(self.total, self.total / _SOURCE_S)
        retry = Retry(dead_letters=self.letters, unavailable=(ClientLibraryError,))
        stream = topology.spout("numbers", source, self.parallelism["numbers"], retry=retry)
        if self.letters:
            letters = stream.stream("dead_letters", DeadLetter)
            letters.shuffle().bolt("letters", DiscardLetters())
        for name in self.bolts:
            last = name == self.bolts[-1]
            poison = self.poison if name == self.bolts[len(self.bolts) // 2] else frozenset[int]()
            make = ExecuteClient if name in self.by_hand else ProcessClient
            code = make(self.dependencies[name], self.asks[name], poison, sink=last)
            grouped = stream.fields("key") if last else stream.shuffle()
            stream = grouped.bolt(name, code, self.parallelism[name])
        return topology

    def plan(self, away_max_s: float) -> list[Step]:
        """The outages, kills and rebalances, ordered by time."""
        steps = [self._outage(away_max_s) for _ in range(int(self.rng.integers(1, 4)))]
        over_s = max(step.at_s + step.fault.for_s for step in steps)
        more = int(self.rng.integers(0, 4))
        steps += [Step(self._time(over_s), self._disturbance()) for _ in range(more)]
        return sorted(steps)

    def _outage(self, away_max_s: float) -> Step:
        rng = self.rng
        for_s = _rounded(AWAY_S[0] * (away_max_s / AWAY_S[0]) ** rng.random())
        at_s = max(self._time(_SOURCE_S), _DOUBTED_S if self.doubts else 0.0)
        name = str(rng.choice(["numbers", *self.bolts]))
        if name == "numbers" or rng.random() < 0.3:
            return Step(at_s, away(name, for_s=for_s))
        kinds = OUTAGES
        if self.doubts and rng.random() < 0.5:
            kinds, for_s, at_s = DOUBTS, min(for_s, DOUBT_MAX_S / 3), _BEGUN_S
        kind = str(rng.choice(sorted(kinds)))
        dependency = self.dependencies[name]
        words = f"{name} ({kind})"
        fault = outage(
            words, lambda: dependency.take_down(kinds[kind]), dependency.bring_back, for_s=for_s
        )
        return Step(at_s, fault)

    def _disturbance(self) -> Any:
        kinds = [
            kill(worker()),
            kill(master()),
            kill(component(str(self.rng.choice(self.bolts)))),
            rebalance(None, list(Layout)[int(self.rng.integers(2))], 0.5),
        ]
        return kinds[int(self.rng.integers(len(kinds)))]

    def _time(self, most_s: float) -> float:
        return _rounded(most_s * self.rng.random())


def draw_day(seed: int) -> Day:
    """What that seed draws."""
    rng = np.random.default_rng([seed, 78])
    bolts = ["a", "b", "sink"][-int(rng.integers(1, 4)) :]
    places = ("process", "prepare", "flush", "tick")
    asks = {}
    for name in bolts:
        extra = {place for place in places[1:] if rng.random() < 0.4}
        asks[name] = frozenset({"flush" if "flush" in extra else "process", *extra})
    doubts = bool(rng.random() < 0.3)
    # Doubt requires ten failed inputs of a task before the first one has used all its attempts.
    total = int(rng.integers(300, 600)) if doubts else int(rng.integers(60, 240))
    letters = bool(rng.random() < 0.5)
    count = int(rng.integers(0, 4)) if letters else 0
    return Day(
        seed,
        rng,
        total,
        frozenset(rng.choice(total, count, replace=False).tolist()),
        letters,
        doubts,
        list(Layout)[int(rng.integers(2))],
        {name: int(rng.integers(1, 4)) for name in ("numbers", *bolts)},
        asks,
        frozenset(name for name in bolts if rng.random() < 0.3),
        {name: Dependency() for name in bolts},
    )


@dataclass(frozen=True)
class Result:
    """The result of one seed."""

    seed: int
    steps: list[str]
    complaints: list[str]  # what did not hold; empty if everything did
    proved: bool
    outcome: Outcome


def run_day(seed: int, away_max_s: float = AWAY_S[1]) -> Result:
    """Run the topology and faults of that seed. Raises an error that is a defect of the runtime."""
    day = draw_day(seed)
    steps = day.plan(away_max_s)
    over_s = max(step.at_s + step.fault.for_s for step in steps)
    experiment = Experiment(
        name=f"day-{seed}",
        topology=day.topology,
        plan=lambda: iter(steps),
        checkers=_checkers(day),
        layout=day.layout,
        seconds_max=over_s + 600.0,
        messages=day.total,
    )
    with SimCluster(seed, nodes=None, check=True) as cluster:
        outcome, _ = run_experiment(experiment, cluster, seed)
    broken = [finding for finding in outcome.findings if finding.verdict is Verdict.BROKEN]
    complaints = [
        f"{finding.checker}: {reason}" for finding in broken for reason in finding.reasons
    ]
    if outcome.error is not None:
        complaints.append(f"it did not finish: {outcome.error[:300]}")
    complaints += [text for text in outcome.undone if not any(why in text for why in _TOO_LATE)]
    proved = outcome.verdict is Verdict.HOLDS
    return Result(seed, [str(step) for step in steps], complaints, proved, outcome)


def _checkers(day: Day) -> tuple[Checker, ...]:
    tasks = day.parallelism["numbers"]
    poison = frozenset(number // tasks for number in day.poison)
    charged = NothingCharged(poison=poison, letters_only=day.doubts)
    promises = (AtLeastOnce(written=not day.poison), NoPrematureAck(), EachEdgeOnce())
    settled_s = RECOVERY_S + WORK_S + (POISON_S if day.poison else 0.0)
    return (*promises, Liveness(settled_s), NoneTimedOut(), charged)


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.3g}")
