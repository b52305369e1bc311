"""The experiment load: it doubles and halves, and the tasks of a slow bolt follow it by themselves.

Beside it runs a topology whose records all have one key, with more load than a task can process.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import BenchmarkError, Log
from sunshower import Bolt, Context, LogSpout, Polled, Topology, between
from sunshower.actors.cluster import RayCluster
from sunshower.actors.run import RayRun
from sunshower.runtime.control.scaling import BUSY, IDLE
from sunshower.topologies.components import Stateless

COST_S = 0.005  # of a record in the slow bolt
LOADS = (0.6, 1.2, 2.4, 1.2, 0.6, 1.2)  # for each step, how many tasks its records keep busy
ONE_KEY = 1.2  # likewise, of the topology with one key, in the first step
STEP_S = 300.0
_FINISH_MAX_S = 120.0  # for the records that are open at the end
_LOOK_S = 1.0


class Event(NamedTuple):
    number: int
    key: int


class Source:
    """A log in a folder, to which records are added at rates that `set_rate` gives."""

    def __init__(self, folder: Path, keys: int = 1_000) -> None:
        self.keys = keys
        self._rates, self._settled, self._done = (
            folder / name for name in ("rates", "settled", "done")
        )

    def set_rate(self, rate: float) -> None:
        """From now on, in records a second."""
        rates = json.loads(self._rates.read_text()) if self._rates.exists() else []
        _replace(self._rates, json.dumps([*rates, (time.time(), rate)]))

    def added(self) -> int:
        """How many records there are."""
        rates = json.loads(self._rates.read_text())
        ends = [begin_s for begin_s, _ in rates[1:]] + [time.time()]
        parts = zip(rates, ends, strict=True)
        return int(sum(rate * (end_s - begin_s) for (begin_s, rate), end_s in parts))

    def settled(self) -> int:
        """All records before this one have been processed."""
        return int(self._settled.read_text()) if self._settled.exists() else 0

    def settle(self, number: int) -> None:
        """All records before this one have been processed."""
        _replace(self._settled, str(number))

    def done(self) -> Counter[int]:
        """Record → how often the bolt has processed it."""
        return Counter(map(int, self._done.read_text().split()))

    def open_done(self) -> Any:
        """The file to which the bolt appends the number of each record, one a line."""
        return self._done.open("a", buffering=1)


def _replace(path: Path, text: str) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.replace(path)


class Reader(LogSpout[Event]):
    """Continues behind the records that are settled; its lag are those that are not."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def open(self, context: Context) -> None:
        self.position = self.stored = self.source.settled()
        self.open_numbers: set[int] = set()

    def poll(self, limit: int) -> Polled[Event]:
        end = max(min(self.source.added(), self.position + limit), self.position)
        numbers, self.position = range(self.position, end), end
        self.open_numbers.update(numbers)
        if (settled := min(self.open_numbers, default=end)) != self.stored:
            self.source.settle(settled)
            self.stored = settled
        array = np.arange(numbers.start, numbers.stop, dtype=np.int64)
        return Polled(array, [Event(number, number % self.source.keys) for number in numbers])

    def acked(self, numbers: NDArray[np.int64]) -> None:
        self.open_numbers.difference_update(numbers.tolist())

    def figures(self) -> Mapping[str, float]:
        return {"lag": self.source.added() - self.stored}


class Slow(Stateless, Bolt[Event, None]):
    """Takes COST_S for each record."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def prepare(self, context: Context) -> None:
        self.clock, self.file = context.clock, self.source.open_done()

    def process(self, record: Event) -> None:
        self.clock.sleep(COST_S)
        self.file.write(f"{record.number}\n")


def load_topology(name: str, source: Source, least: int, most: int, **settings: Any) -> Topology:
    """A reader and the slow bolt, with `between(least, most)` tasks and workers."""
    topology = Topology(name, workers=between(least, most), **settings)
    events = topology.spout("events", Reader(source))
    events.fields("key").bolt("slow", Slow(source), parallelism=between(least, most))
    return topology


def changes(run: RayRun, since_s: float = 0.0) -> list[tuple[float, str]]:
    """When each change by itself began, in Unix time, and why."""
    lines = [line for line in run.log_lines() if line.event in ("scaled", "not scaled")]
    return [(line.time, line.text) for line in lines if line.time >= since_s]


def run_load(cluster: RayCluster, folder: Path, log: Log, step_s: float = STEP_S) -> dict[str, Any]:
    """One run. Raises BenchmarkError if the open records are not processed at its end."""
    (folder / "keys").mkdir(parents=True)
    (folder / "key").mkdir()
    source, skewed = Source(folder / "keys"), Source(folder / "key", keys=1)
    source.set_rate(LOADS[0] / COST_S)
    skewed.set_rate(ONE_KEY / COST_S)
    runs = [
        cluster.submit(load_topology("load", source, 1, 8).graph()),
        cluster.submit(load_topology("one_key", skewed, 2, 4).graph()),
    ]
    try:
        steps = []
        for load in LOADS:
            steps.append(_step(runs[0], source, load, step_s))
            log(f"{steps[-1]}")
            if len(steps) == 1:
                says = next(view.why for view in runs[1].snapshot().scaling if view.component)
                log(f"one key: {says}")
                skewed.set_rate(0.0)
        source.set_rate(0.0)
        for each in (source, skewed):
            _finish(each)
        of_key = [text for _, text in changes(runs[1])]
    finally:
        for run in runs:
            run.kill()
    return figures(steps, [source, skewed]) | {"changes_of_key": len(of_key), "of_key": says}


def _step(run: RayRun, source: Source, load: float, step_s: float) -> dict[str, Any]:
    """The figures of one step."""
    begin_s, rate = time.time(), load / COST_S
    source.set_rate(rate)
    time.sleep(step_s)
    lag = source.added() - source.settled()
    return {
        "load": load,
        "tasks": len(run.plan.tasks_of("slow")),
        "workers": len(run.plan.workers),
        "changes": [[round(at_s - begin_s, 1), text] for at_s, text in changes(run, begin_s)],
        "lag_s": round(lag / rate, 2),
    }


def _finish(source: Source) -> None:
    deadline_s = time.monotonic() + _FINISH_MAX_S
    while source.settled() < source.added():
        if time.monotonic() > deadline_s:
            raise BenchmarkError(
                f"{source.added() - source.settled():,} records were not processed at the end"
            )
        time.sleep(_LOOK_S)


def figures(steps: Sequence[Mapping[str, Any]], sources: Sequence[Source]) -> dict[str, Any]:
    """The figures of a run: those of each step, and the worst of them.

    `decided_s`: how long after the begin of a step its first change began, where the tasks of the
    step before are too few for the load, or too many.
    """
    pairs = itertools.pairwise(steps)
    unfit = [step for last, step in pairs if not IDLE < step["load"] / last["tasks"] < BUSY]
    done = [(source.added(), source.done()) for source in sources]
    return {
        "steps": list(steps),
        "decided_s": max(step["changes"][0][0] if step["changes"] else STEP_S for step in unfit),
        "lag_s": max(step["lag_s"] for step in steps),
        "changes": max(len(step["changes"]) for step in steps),
        "records": sum(added for added, _ in done),
        "lost": sum(len({*range(added)} - counts.keys()) for added, counts in done),
        "twice": sum(counts.total() - len(counts) for _, counts in done),
    }
