"""Shared by scenarios: a source of numbers, and a watch that runs an outage and measures it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sunshower import Number, Spout
from sunshower.actors.run import RayRun
from sunshower.errors import SunshowerError
from sunshower.runtime.events.metrics import Counts

Figures = dict[str, float | int | str]
_POLL_S = 0.2
BEFORE_S = 5.0  # of load before the outage, and after the recovery
CAUGHT_UP_S = 300.0  # at most, after the end of the outage


class Numbers(Spout[Number]):
    """0, 1, 2, …, `rate` a second, until the file `end` exists."""

    def __init__(self, rate: float, end: Path) -> None:
        self._rate, self._end = rate, end

    def records(self) -> Iterator[Number | None]:
        begun_s, number = time.monotonic(), 0
        while not self._end.exists():
            due = int((time.monotonic() - begun_s) * self._rate)
            if number >= due:
                yield None
            while number < due:
                yield Number(number)
                number += 1


class OutageWatch:
    """Polls the status of a topology before, during and after an outage."""

    def __init__(self, run: RayRun, spouts: Sequence[str]) -> None:
        self._run, self._spouts = run, spouts
        self._waited: set[str] = set()  # components that have waited
        self._error = ""  # why they waited
        self._recovered_s = self._caught_up_s = -1.0

    def outage(self, stop: Callable[[], None], seconds: float, start: Callable[[], None]) -> None:
        """Stop a server, wait `seconds`, restart it, and wait for new acks of all spouts. The
        outage ends when `start` returns, which it does when the server answers."""
        self.until(lambda: min(self._acked()) > 0, 60)
        self.watch_for(BEFORE_S)
        stop()
        self.watch_for(seconds)
        start()
        self._end_s, before = time.monotonic(), self._acked()
        self.until(
            lambda: all(now > then for now, then in zip(self._acked(), before, strict=True)),
            CAUGHT_UP_S,
        )
        self._recovered_s = time.monotonic() - self._end_s
        self.watch_for(BEFORE_S)

    def catch_up(self, end: Path, is_done: Callable[[], bool]) -> None:
        """End the source, and wait until all numbers are processed."""
        end.touch()
        numbers = self._spouts[0]
        self.until(lambda: self._run.snapshot().component(numbers).pending == 0, CAUGHT_UP_S)
        self.until(is_done, CAUGHT_UP_S)
        self._caught_up_s = time.monotonic() - self._end_s

    def watch_for(self, seconds: float) -> None:
        """Poll for `seconds`."""
        end_s = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= end_s, seconds + 1)

    def until(self, condition: Callable[[], bool], within_s: float) -> None:
        """Poll until `condition` is true, for at most `within_s`."""
        end_s = time.monotonic() + within_s
        while not condition() and time.monotonic() < end_s:
            for task in self._run.snapshot().waiting():
                self._waited.add(task.component)
                if task.health.wait is not None:
                    self._error = str(task.health.wait.error)
            time.sleep(_POLL_S)

    def figures(self) -> Figures:
        """The figures. `recovery_s`: from the end of the outage until each spout had new acks;
        `caught_up_s`: until all was processed (the load ends 5 s after the recovery)."""
        snapshot = self._run.snapshot()
        counts = sum((snapshot.component(spout) for spout in self._spouts), Counts())
        return {
            "emitted": snapshot.component(self._spouts[0]).emitted
            - snapshot.component(self._spouts[0]).replayed,
            "acked": counts.acked,
            "replayed": counts.replayed,
            **{f"failed: {cause}": count for cause, count in sorted(counts.causes.items())},
            "dead letters": counts.dead,
            "waited": " ".join(sorted(self._waited)),
            "waited for": self._error.partition("\n")[0],
            "restarts": snapshot.restarts,
            "recovery_s": round(self._recovered_s, 1),
            "caught_up_s": round(self._caught_up_s, 1),
        }

    def _acked(self) -> list[int]:
        snapshot = self._run.snapshot()
        return [snapshot.component(spout).acked for spout in self._spouts]


def figures_or_failure(watch: OutageWatch, scenario: Callable[[], Figures]) -> Figures:
    """The figures of a scenario; if the topology fails, its state and the reason."""
    try:
        figures = scenario()
    except SunshowerError as error:
        return {"state": "failed", "why": str(error)[:500]}
    return {"state": "active", **watch.figures(), **figures}
