"""Injects the demo's fault: SIGKILL for the process of a `split` task, at a third of the lines."""

from __future__ import annotations

import time
from collections.abc import Callable

from sunshower.runtime.cluster import Run
from sunshower.runtime.events.metrics import Snapshot


class DemoNemesis:
    """Kills a worker process once, when a third of `lines` is acked."""

    def __init__(self, lines: int, say: Callable[[str], None]) -> None:
        self._lines = lines
        self._say = say
        self.killed_pid: int | None = None
        self._killed_s = 0.0

    def look(self, run: Run, snapshot: Snapshot) -> None:
        """Kill the process if it is time, and lines are still open."""
        acked = snapshot.component("lines").acked
        if self.killed_pid is None and self._lines / 3 <= acked < self._lines:
            target = run.plan.tasks_of("split")[0]
            self._killed_s = time.monotonic()
            self.killed_pid = run.kill_worker(target.worker)
            self._say(
                f"SIGKILL for {target.name}, process {self.killed_pid}, after {acked:,} lines"
            )

    def seconds_to_replay(self, snapshot: Snapshot) -> float | None:
        """Return the time from the kill to the first completed replay after it, or None."""
        replays = [task.first_replay_s for task in snapshot.tasks() if task.first_replay_s]
        seconds = min(replays, default=0.0) - self._killed_s
        return round(seconds, 3) if self.killed_pid is not None and seconds > 0 else None
