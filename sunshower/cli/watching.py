"""A cluster that somebody watches: what runs there is shown, and an interrupted history is kept."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

from sunshower.cli.display import Display, duration
from sunshower.cli.screen import Screen
from sunshower.errors import SunshowerError
from sunshower.faults.plans import Step
from sunshower.runtime.cluster import Cluster, Run
from sunshower.runtime.history import Entry
from sunshower.runtime.plan import Layout
from sunshower.topologies.graph import Graph

_LOOK_EVERY_S = 0.25


class WatchedCluster:
    """A cluster for one run, whose `steps` are told when they are due.

    `live`: show the counters while the run is waited for. On simulated time they are not asked
    for: a run that is watched must be the same as one that is not.
    """

    def __init__(
        self, cluster: Cluster, screen: Screen, title: str, steps: Sequence[Step], *, live: bool
    ) -> None:
        self._cluster = cluster
        self._screen, self._title, self._steps = screen, title, steps
        self._live = live
        self.run: WatchedRun | None = None
        self.faults: list[Entry] = []  # what the nemesis has noted so far

    def submit(
        self,
        graph: Graph,
        layout: Layout = Layout.PACK,
        *,
        active: bool = True,
        sample: int | None = None,
    ) -> Run:
        """See the port."""
        inner = self._cluster.submit(graph, layout, active=active, sample=sample)
        look = _Look(inner, self._screen, self._title, self._steps) if self._live else None
        self.run = WatchedRun(inner, look)
        return cast("Run", self.run)


class WatchedRun:
    """All that the run does, and a look at it now and then."""

    def __init__(self, run: Run, look: Callable[[float], None] | None) -> None:
        self._run = run
        self._look = look
        self.begun_s = run.now()  # its time 0
        self.entries: list[Entry] | None = None  # its history, as soon as somebody had asked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def activate(self) -> None:
        """Here its time begins."""
        self.begun_s = self._run.now()
        self._run.activate()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait as it does, and look meanwhile."""
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
        """What it gives, and it is remembered."""
        self.entries = self._run.history()
        return self.entries

    def stop(self) -> None:
        """Stop it. If nobody has asked for the history by now, somebody has interrupted."""
        try:
            if self.entries is None:
                self.history()
        except SunshowerError:
            self.entries = None  # whoever ends a run that is gone has no history of it
        finally:
            self._run.stop()


class _Look:
    """Shows a run on a screen, and tells the steps of its plan as they come."""

    def __init__(self, run: Run, screen: Screen, title: str, steps: Sequence[Step]) -> None:
        self._run, self._screen, self._title = run, screen, title
        self._display = Display(run.plan.graph)
        self._due = deque(steps)

    def __call__(self, now_s: float) -> None:
        while self._due and self._due[0].at_s <= now_s:
            self._screen.say(f"[yellow]{_escaped(str(self._due.popleft()))}[/]")
        try:
            snapshot = self._run.snapshot()
        except SunshowerError:
            return  # the master is away, or has given up: whoever waits will hear of it
        self._display.see(snapshot, time.monotonic())
        self._screen.show(self._display, snapshot, f"{self._title}  ·  {duration(now_s)}")


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
