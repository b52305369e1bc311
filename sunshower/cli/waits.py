"""Which components wait for a dependency, in words: lines for a display, news, the first start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sunshower.cli.complaints import user_frames
from sunshower.runtime.metrics import Snapshot, TaskStats
from sunshower.runtime.plan import Plan
from sunshower.runtime.supervision import Standing, WaitKind
from sunshower.runtime.usercode import TaskError

FIRST_REACH_S = 10.0  # how long `sunshower run` waits for what a component has never reached
_NEWS_EVERY_S = 10.0  # of one component whose dependency comes and goes


def wait_lines(tasks: Iterable[TaskStats]) -> Iterator[str]:
    """A line for each component and error: `store[1] waits for a dependency: 2 min 10 s, 14 tries,
    last error: ConnectionRefusedError: …`. Tasks that wait for the same thing share one."""
    groups: dict[tuple[str, WaitKind, str], list[TaskStats]] = {}
    for task in tasks:
        if (wait := task.health.wait) is not None:
            key = (task.component, wait.kind, error_text(wait.error))
            groups.setdefault(key, []).append(task)
    for (component, kind, text), found in groups.items():
        waits = [task.health.wait for task in found if task.health.wait is not None]
        tries, one = sum(wait.tries for wait in waits), len(waits) == 1
        who = (
            f"{component}[{waits[0].error.index}]" if one else f"{len(waits)} tasks of {component}"
        )
        what = f"wait{'s' * one} for a dependency"
        if kind is WaitKind.DOUBT:
            what = f"keep{'s' * one} failing after {'it' if one else 'they'} had succeeded (doubt)"
        elif not any(wait.reached for wait in waits):
            what += f" that {component} has never reached"
        for_s = max(wait.for_s for wait in waits)
        times = f"{tries:,} {'try' if tries == 1 else 'tries'}"
        yield f"{who} {what}: {elapsed(for_s)}, {times}, last error: {text}"


def unreached(snapshot: Snapshot, limit_s: float = FIRST_REACH_S) -> str | None:
    """What to tell if a component waits since `limit_s` for a dependency that none of its tasks has
    ever reached; None if there is none. With the traceback, if the error has one."""
    for task in snapshot.waiting():
        wait = task.health.wait
        if wait is None or wait.kind is not WaitKind.UNAVAILABLE or wait.reached:
            continue
        if wait.for_s >= limit_s:
            traceback = f"\n{wait.error.traceback}" if wait.error.traceback else ""
            return (
                f"{task.component} has never reached a dependency that it needs, in "
                f"{elapsed(wait.for_s)} and {wait.tries:,} tries; the last error: "
                f"{wait.error.line}. Start the dependency, or correct its address, and run again. "
                f"(`sunshower submit` goes on trying.){traceback}"
            )
    return None


def is_opened(snapshot: Snapshot, plan: Plan) -> bool:
    """Whether each spout and bolt task was opened, is quarantined, or waits for a dependency."""
    opened = {
        task.task
        for task in snapshot.tasks()
        if task.health.wait or task.health.standing is not Standing.WAITING
    }
    components = plan.graph.components  # acker shards have no user code to open
    return opened >= {task.id for task in plan.tasks if task.component in components}


@dataclass
class _Outage:
    """One component's wait, from the first task that waits to the last that goes on."""

    since_s: float
    tasks: set[int] = field(default_factory=set)  # that have not gone on yet
    shown: set[WaitKind] = field(default_factory=set)  # what there was a line for


class WaitNews:
    """When components begin to wait, and when they go on. A dependency that comes and goes is told
    once in ten seconds."""

    def __init__(self) -> None:
        self._outages: dict[str, _Outage] = {}
        self._quiet_until_s: dict[str, float] = {}

    def see(self, snapshot: Snapshot, now: float) -> Iterator[str]:
        """The lines that are new with this snapshot. `now`: seconds on any steady clock."""
        waiting: dict[str, list[TaskStats]] = {}
        for task in snapshot.waiting():
            waiting.setdefault(task.component, []).append(task)
        for component, tasks in waiting.items():
            yield from self._see_waits(component, tasks, now)
        for component in list(self._outages):
            yield from self._see_end(component, snapshot, now)

    def _see_waits(self, component: str, tasks: list[TaskStats], now: float) -> Iterator[str]:
        waits = [task.health.wait for task in tasks if task.health.wait is not None]
        since_s = now - max(wait.for_s for wait in waits)
        outage = self._outages.setdefault(component, _Outage(since_s))
        outage.tasks.update(task.task for task in tasks)
        kinds = {wait.kind for wait in waits}
        if kinds <= outage.shown or now < self._quiet_until_s.get(component, now):
            return
        fresh = [
            task for task in tasks if task.health.wait and task.health.wait.kind not in outage.shown
        ]
        outage.shown |= kinds
        self._quiet_until_s[component] = now + _NEWS_EVERY_S
        yield from wait_lines(fresh)
        doubts = (wait.error for wait in waits if wait.kind is WaitKind.DOUBT)
        if WaitKind.DOUBT in kinds and (error := next(doubts)).traceback:
            yield from user_frames(error.traceback)

    def _see_end(self, component: str, snapshot: Snapshot, now: float) -> Iterator[str]:
        """A task that is about to be opened, or whose worker has just died, has not gone on yet."""
        outage = self._outages[component]
        for task in snapshot.tasks():
            is_waiting = task.health.wait or task.health.standing is Standing.WAITING
            if task.task in outage.tasks and not is_waiting:
                outage.tasks.remove(task.task)
        if outage.tasks:
            return
        del self._outages[component]
        stopped = {error.component for error in snapshot.degraded.values()}
        if outage.shown and component not in stopped:
            yield f"{component} goes on, after {elapsed(now - outage.since_s)}"


def error_text(error: TaskError) -> str:
    """`ConnectionRefusedError: …`: the first line of an error, without the place before it."""
    place = f"{error.component}[{error.index}]"
    if error.line.startswith(f"{place}: "):
        return error.line.removeprefix(f"{place}: ")
    before, raised, text = error.line.partition(f"{place} raised ")
    return text if raised else before


def elapsed(seconds: float) -> str:
    """A span in two units: `42 s`, `2 min 10 s`, `5 h 3 min`, `12 d 4 h`."""
    whole = round(seconds)
    for (unit, length_s), (smaller, part_s) in (
        (("d", 86_400), ("h", 3_600)),
        (("h", 3_600), ("min", 60)),
        (("min", 60), ("s", 1)),
    ):
        if whole >= length_s:
            rest = whole % length_s // part_s
            return f"{whole // length_s} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"
