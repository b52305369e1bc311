"""The one who hurts: a SIGKILL for the process of a `split` task, a third of the way through."""

from __future__ import annotations

import time
from collections.abc import Callable

from sunshower.runtime.cluster import Run
from sunshower.runtime.metrics import Snapshot


class Nemesis:
    """Looks at each snapshot and strikes once, when a third of `lines` is acked."""

    def __init__(self, lines: int, tell: Callable[[str], None]) -> None:
        self._lines = lines
        self._tell = tell
        self.killed_pid: int | None = None
        self._killed_s = 0.0

    def look(self, run: Run, snapshot: Snapshot) -> None:
        """Strike if it is time, and if there is still something to hurt."""
        acked = snapshot.component("lines").acked
        if self.killed_pid is None and self._lines / 3 <= acked < self._lines:
            victim = run.plan.tasks_of("split")[0]
            self._killed_s = time.monotonic()
            self.killed_pid = run.kill_worker(victim.worker)
            self._tell(
                f"[bold red]SIGKILL[/] for {victim.component}\\[{victim.index}], process "
                f"{self.killed_pid}, after {acked:,} lines"
            )

    def seconds_to_replay(self, snapshot: Snapshot) -> float | None:
        """From the kill to the first completed replay; None if there was none after it."""
        replays = [task.first_replay_s for task in snapshot.tasks() if task.first_replay_s]
        seconds = min(replays, default=0.0) - self._killed_s
        return round(seconds, 3) if self.killed_pid is not None and seconds > 0 else None
