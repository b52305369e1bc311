"""Runs a topology with a KafkaSpout in one worker of this process, until a condition is true."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sunshower import Bolt, Retry, Topology
from sunshower.clock import SystemClock
from sunshower.kafka.spout import KafkaSpout
from sunshower.runtime.events.health import WaitKind
from sunshower.runtime.plan import Layout, make_plan
from sunshower.runtime.worker import Worker

WITHIN_S = 120.0


class Seen(Bolt[Any, None]):
    """Keeps its records in a list; raises for those of which `refuse` is true."""

    def __init__(self, refuse: Callable[[Any], bool] = lambda _: False) -> None:
        self.refuse = refuse
        self.records: list[Any] = []

    def process(self, record: Any) -> None:
        if self.refuse(record):
            raise ValueError("refused")
        self.records.append(record)


class Run:
    """A running topology, in one worker."""

    def __init__(self, topology: Topology, life: int = 1) -> None:
        self.clock = SystemClock()
        plan = make_plan(topology.graph(), Layout.PACK)
        self.core = Worker(plan, 0, life, np.random.default_rng(life), self.clock)

    def until(self, happened: Callable[[], object], within_s: float = WITHIN_S) -> None:
        """Step the worker until `happened` is true, which may ask a broker: at least as long as
        that takes, before it is asked again."""
        begun_s = self.clock.now()
        end_s = begun_s + within_s
        while not happened():
            checked_s = self.clock.now()
            took_s, now_s = checked_s - begun_s, checked_s
            while now_s <= checked_s + took_s:
                wait_s = self.core.step()
                self.core.end_waits()
                if wait_s:
                    self.clock.sleep(min(wait_s, 0.02))
                now_s = self.clock.now()
            assert now_s < end_s, f"not within {within_s} s: {self.core.stats()}"
            begun_s = now_s

    def until_waiting(self, kind: WaitKind | None = None) -> None:
        """Step the worker until a task waits; `kind`: for that."""
        self.until(
            lambda: any(
                kind in (None, care.wait) and care.wait is not None
                for care in self.core.supervisions
            )
        )

    def step_for(self, seconds: float) -> None:
        """Step the worker for so many seconds."""
        end_s = self.clock.now() + seconds
        self.until(lambda: self.clock.now() >= end_s, seconds + WITHIN_S)

    def records(self, bolt: str = "seen") -> list[Any]:
        bolts = [task.bolt for task in self._bolts(bolt) if task.bolt is not None]
        return [record for seen in bolts for record in seen.records]

    def spout(self, index: int = 0) -> KafkaSpout:
        task = [*self.core._wired.spouts.values()][index]
        assert task.spout is None or isinstance(task.spout, KafkaSpout)
        return task.spout  # type: ignore[no-any-return]

    def contiguous(self) -> dict[str, int]:
        """Partition → the offset below which all its messages are settled, over all tasks."""
        offsets = {}
        for task in self.core._wired.spouts.values():
            if task.spout is not None and hasattr(task.spout, "_reader"):
                offsets |= {
                    str(p): progress.contiguous for p, progress in task.spout.standing().items()
                }
        return offsets

    def errors(self) -> list[str]:
        return [str(care.last) for care in self.core.supervisions if care.last]

    def _bolts(self, id: str) -> list[Any]:
        return [t for t in self.core._wired.bolts.values() if t.task.component == id]


def topology(spout: KafkaSpout, bolt: Bolt[Any, None] | None = None, **more: Any) -> Topology:
    """The spout, a bolt `seen`, a bolt for each further stream, and one for dead letters."""
    tasks, retry = more.pop("tasks", 1), more.pop("retry", None)
    streams = more.pop("streams", {})
    program = Topology("kafka", workers=1, **more)
    out = program.spout("in", spout, tasks, retry=retry, streams=streams)
    out.shuffle().bolt("seen", bolt or Seen())
    for stream in streams:
        out.stream(stream).shuffle().bolt(stream, Seen())
    if isinstance(retry, Retry) and retry.dead_letters is True:
        out.stream("dead_letters").shuffle().bolt("letters", Seen())
    return program


@contextmanager
def running(program: Topology, life: int = 1) -> Iterator[Run]:
    """Run the topology; its worker is closed at the end."""
    run = Run(program, life)
    try:
        yield run
    finally:
        run.core.close()
