"""A cluster wrapper that shows a run's progress and keeps the history of an interrupted run."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from rich.markup import escape

from sunshower.errors import SunshowerError
from sunshower.experiments.faults.fault_plan import Step
from sunshower.runtime.cluster import Cluster, Run
from sunshower.runtime.events.event_log import Entry
from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.plan import Layout
from sunshower.topologies.graph import Graph

_LOOK_EVERY_S = 0.25


class ProgressDisplay(Protocol):
    """Shows the progress of experiments, as `sunshower.cli.screen.Screen` does."""

    def say(self, text: str) -> None:
        """Print a line that stays. Rich markup is rendered."""

    def doing(self, text: str) -> None:
        """Show the current activity."""

    def watch(self, graph: Graph, title: str) -> Callable[[Snapshot, float], None]:
        """Return a function that shows a snapshot of a run and the run's time in seconds."""


class WatchedCluster:
    """A cluster for one run that prints each of `steps` when it is due.

    `live`: show the counters while waiting for the run. In virtual time they are not read, because
    reading them would change the run.
    """

    def __init__(
        self,
        cluster: Cluster,
        display: ProgressDisplay,
        title: str,
        steps: Sequence[Step],
        *,
        live: bool,
    ) -> None:
        self._cluster = cluster
        self._display, self._title, self._steps = display, title, steps
        self._live = live
        self.run: WatchedRun | None = None
        self.faults: list[Entry] = []  # the nemesis's log entries so far

    def submit(
        self,
        graph: Graph,
        layout: Layout = Layout.PACK,
        *,
        active: bool = True,
        sample: int | None = None,
    ) -> Run:
        """Submit the graph and wrap its run."""
        inner = self._cluster.submit(graph, layout, active=active, sample=sample)
        look = _Look(inner, self._display, self._title, self._steps) if self._live else None
        self.run = WatchedRun(inner, look)
        return cast("Run", self.run)


class WatchedRun:
    """A run that calls `look` while it is waited for, and remembers its history."""

    def __init__(self, run: Run, look: Callable[[float], None] | None) -> None:
        self._run = run
        self._look = look
        self.begun_s = run.now()  # its time 0
        self.entries: list[Entry] | None = None  # its history, once it was read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def activate(self) -> None:
        """Activate the run: its time begins here."""
        self.begun_s = self._run.now()
        self._run.activate()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait like the wrapped run, and call `look` every quarter of a second."""
        if self._look is None:
            return self._run.wait(timeout_s)
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = _LOOK_EVERY_S if end_s is None else end_s - time.monotonic()
            if self._run.wait(max(0.0, min(left_s, _LOOK_EVERY_S))):
                return True
            self._look(self._run.now() - self.begun_s)
            if end_s is not None and time.monotonic() >= end_s:
                return False

    def history(self) -> list[Entry]:
        """Return the history of the run, and keep it."""
        self.entries = self._run.history()
        return self.entries

    def stop(self) -> None:
        """Stop the run. If its history was not read, the run was interrupted: read it first."""
        try:
            if self.entries is None:
                self.history()
        except SunshowerError:
            self.entries = None  # the run is gone, and its history with it
        finally:
            self._run.stop()


class _Look:
    """Shows snapshots of a run, and prints the steps of its plan when they are due."""

    def __init__(
        self, run: Run, display: ProgressDisplay, title: str, steps: Sequence[Step]
    ) -> None:
        self._run, self._display = run, display
        self._show = display.watch(run.plan.graph, title)
        self._due = deque(steps)

    def __call__(self, now_s: float) -> None:
        while self._due and self._due[0].at_s <= now_s:
            self._display.say(f"[yellow]{escape(str(self._due.popleft()))}[/]")
        try:
            snapshot = self._run.snapshot()
        except SunshowerError:
            return  # the master is away or has failed; `wait` reports that
        self._show(snapshot, now_s)
