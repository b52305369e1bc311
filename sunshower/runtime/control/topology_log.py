"""The log of one topology for `sunshower logs`; separate because it decides nothing.

Its lines follow from what the master knows: from commands, and from changes between two statistics
of a worker. Lines of user code's own `logging` come from the workers (log_lines.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from sunshower.runtime.events.health import Standing
from sunshower.runtime.events.log_lines import LINE_BYTES, LogLine
from sunshower.runtime.events.metrics import FailurePlace, TaskStats, WorkerStats
from sunshower.runtime.plan import Plan, Task
from sunshower.runtime.tasks.flight_recorder import CrashReport
from sunshower.texts import clip

_LINES_MAX = 2000  # 8 MB at most
_NUMBERS_A_SECOND = 1000
_REPEAT_S = 10.0  # between two lines about failures of one kind and place
ROLLED_BACK = "the new code did not open, and the old code continues: "  # begins a reason


class TopologyLog:
    """The last 2,000 lines. It is in memory: the next process of the master begins a new one."""

    def __init__(self, wall: Callable[[], float], cancelled: Iterable[int] = ()) -> None:
        """`wall`: the Unix time. Numbers begin with it, so those of a next master are higher.
        `cancelled`: numbers of changes that are in the log of a former master."""
        self._wall = wall
        self._cancelled = {*cancelled}
        self._is_moving = False  # tasks, in a rebalance that is in this log
        self._next = int(wall() * _NUMBERS_A_SECOND) + 1
        self._lines: deque[LogLine] = deque(maxlen=_LINES_MAX)
        self._last: dict[int, WorkerStats] = {}  # worker → its statistics before
        self._begun: dict[int, int] = {}  # worker → the life whose beginning is in this log
        self._quarantined: set[int] = set()  # tasks; also of the next lives of their workers
        self._waits_since_s: dict[int, float] = {}  # task → Unix time
        # By event, cause and place: failures that are not logged yet, and when the last one was.
        self._failures: dict[tuple[object, ...], LogLine] = {}
        self._logged_s: dict[tuple[object, ...], float] = {}
        self._problems: dict[str, Collection[str]] = {}  # event → the problems that are there

    def read(self, after: int = 0) -> list[LogLine]:
        """The lines with numbers above `after`, in order."""
        self._log_failures()
        return [line for line in self._lines if line.number > after]

    def add(self, lines: Iterable[LogLine]) -> None:
        """Add lines of a worker."""
        for line in lines:
            self._lines.append(replace(line, number=self._next))
            self._next += 1

    def note(self, event: str, text: str, level: str = "info", **place: Any) -> None:
        """Add an event that happens now."""
        self.add([LogLine(self._wall(), level, event, clip(text, LINE_BYTES), **place)])

    def problems(self, event: str, lines: Collection[str], level: str = "warning") -> None:
        """Add those problems that are there and were not at the last call for this event."""
        for line in lines:
            if line not in self._problems.get(event, ()):
                self.note(event, line, level)
        self._problems[event] = lines

    def leave(self, workers: Sequence[int]) -> None:
        """Add that tasks of these workers leave nodes that are being drained."""
        text = f"tasks of worker {workers[0]} move to another node: theirs is being drained"
        if len(workers) > 1:
            names = ", ".join(map(str, workers))
            text = f"tasks of workers {names} move to other nodes: theirs are being drained"
        self.note("node drained", text)

    def rebalance(self, cancelled: Mapping[int, str], *, packs: bool, ends: bool) -> None:
        """Add that a rebalance begins or ends, and the changes that were cancelled: the number of
        each → why."""
        for number, why in cancelled.items():
            if number not in self._cancelled:
                self._cancelled.add(number)
                name = "upgrade rolled back" if why.startswith(ROLLED_BACK) else "change cancelled"
                self.note(name, why, "error")
        if packs and not self._is_moving:
            self._is_moving = True
            self.note("rebalance begins", "all workers stop, and tasks move")
        elif ends and self._is_moving:
            self._is_moving = False
            self.note("rebalance ends", "all tasks run in their new places")

    def start(
        self,
        worker: int,
        life: int,
        tasks: Iterable[Task],
        report: CrashReport | None,
    ) -> None:
        """A worker begins a life; `report`: of its former process, if that died in user code."""
        here, self._begun[worker] = list(tasks), life
        names = ", ".join(task.name for task in here) or "only ackers"
        if life == 1 or self._is_moving:
            self.note("started", f"worker {worker} runs {names}", worker=worker)
            return
        place: dict[str, Any] = {"worker": worker}
        why = ""
        running = None if report is None else next((t for t in here if t.id == report.task), None)
        if running is not None:
            place |= {"component": running.component, "task": running.index}
            why = f"; the former process ended in user code of {running.component}[{running.index}]"
        text = f"worker {worker} was started again (life {life}) and runs {names}{why}"
        self.note("replaced", text, "warning", **place)

    def compare(self, stats: WorkerStats, plan: Plan) -> None:
        """Add what has changed since the last statistics of this worker."""
        last = self._last.get(stats.worker)
        if last is None or last.incarnation != stats.incarnation:
            has_begun = self._begun.get(stats.worker) == stats.incarnation
            last = None if has_begun else stats  # of an older life a former master had the log
            for task in stats.tasks:
                self._waits_since_s.pop(task.task, None)  # a new life has not waited yet
        before = {} if last is None else {task.task: task for task in last.tasks}
        self._last[stats.worker] = stats
        indexes = {task.id: task.index for task in plan.tasks_on(stats.worker)}
        for task in stats.tasks:
            place = {
                "component": task.component,
                "task": indexes.get(task.task),
                "worker": stats.worker,
            }
            self._compare_health(task, before.get(task.task), place)
            self._count_failures(task, before.get(task.task), place)
        self._log_failures()

    def _compare_health(
        self, task: TaskStats, before: TaskStats | None, place: dict[str, Any]
    ) -> None:
        """`before`: of the same life."""
        now = task.health
        who = f"{task.component}[{place['task']}]"
        if now.wait is not None and task.task not in self._waits_since_s:
            self._waits_since_s[task.task] = self._wall() - now.wait.for_s
            text = f"{who} waits ({now.wait.kind}): {now.wait.error.line}"
            self.note("outage begins", text, "warning", **place)
        goes_on = now.wait is None and now.standing is not Standing.WAITING
        if goes_on and (since_s := self._waits_since_s.pop(task.task, None)) is not None:
            text = f"{who} continues, after {self._wall() - since_s:.1f} s"
            self.note("outage ends", text, **place)
        is_bad, was_bad = now.standing is Standing.QUARANTINED, task.task in self._quarantined
        if is_bad and not was_bad:
            self._quarantined.add(task.task)
            why = now.last[-1].story if now.last else "its process died again and again"
            self.note("quarantined", f"{who} is quarantined: {why}", "error", **place)
        elif was_bad and now.standing is Standing.RUNNING:
            self._quarantined.remove(task.task)
            self.note("quarantine ends", f"{who} runs again", **place)
        raised = now.errors - (0 if before is None else before.health.errors)
        if raised and now.last and now.wait is None and not is_bad:
            self._count("error", "", raised, now.last[-1].story, "error", place)

    def _count_failures(
        self, task: TaskStats, before: TaskStats | None, place: dict[str, Any]
    ) -> None:
        grown = task.counts if before is None else task.counts.since(before.counts)
        failures = [group.failure for group in reversed(task.failures)]  # the newest at the end
        newest = {(failure.cause.value, failure.component): failure for failure in failures}
        for failed_at, count in grown.places.items():
            sample = newest.get((failed_at.cause, failed_at.component))
            # The newest reason may be that of another task of the component.
            why = failed_at.cause if sample is None else str(replace(sample, task=failed_at.task))
            text = f"tuples of spout {task.component!r} failed: {why}"
            self._count("failed", failed_at.cause, count, text, "warning", _place_of(failed_at))
        if grown.dead:
            text = f"tuples of spout {task.component!r} are dead letters"
            self._count("dead letter", "", grown.dead, text, "error", place)

    def _count(
        self, event: str, cause: str, count: int, text: str, level: str, place: dict[str, Any]
    ) -> None:
        key = (event, cause, *place.values())
        if (waiting := self._failures.get(key)) is not None:
            count += waiting.count
        line = LogLine(self._wall(), level, event, clip(text, LINE_BYTES), **place, count=count)
        self._failures[key] = line

    def _log_failures(self) -> None:
        """Add a line for the first failure of an event and a place at once, then one every ten
        seconds with the number of those since the last line."""
        now = self._wall()
        for key in list(self._failures):
            if now - self._logged_s.get(key, -inf) >= _REPEAT_S:
                self._logged_s[key] = now
                self.add([self._failures.pop(key)])


def _place_of(place: FailurePlace) -> dict[str, Any]:
    known = place.component and place.task >= 0
    return {
        "component": place.component,
        "task": place.task if known else None,
        "worker": place.worker if known else None,
    }
