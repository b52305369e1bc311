"""Describes the problems of a running topology, a line each: waits, errors, dead letters."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sunshower.cli.formatting import elapsed, number_of, time_of_day, user_frames
from sunshower.failures import FailureGroup, normalised
from sunshower.runtime.events.health import Standing, TaskError, WaitKind
from sunshower.runtime.events.metrics import Snapshot, TaskStats, Unchanged
from sunshower.runtime.plan import Plan, Task
from sunshower.texts import clip
from sunshower.topologies.graph import Graph
from sunshower.trident.coordination.attempts import batch_group_of, letters_id

_FIRST_REACH_S = 30.0  # how long `sunshower run` waits for a dependency that was never reached
_DO_NOT_MOVE = "did not move the watermark: see ahead= of the window"
_IDLE_S = 1.0  # so long after its opening a spout that has emitted nothing has no records
_NEWS_EVERY_S = 10.0  # at most one line about a component in this time
_ONE_WAITS = {
    WaitKind.UNAVAILABLE: "waits for a dependency",
    WaitKind.DOUBT: "keeps failing after it had succeeded (doubt)",
    WaitKind.FILLING: "is filled again after its process has died",
}
_SEVERAL_WAIT = {
    WaitKind.UNAVAILABLE: "wait for a dependency",
    WaitKind.DOUBT: "keep failing after they had succeeded (doubt)",
    WaitKind.FILLING: "are filled again after the deaths of their processes",
}


def wait_lines(tasks: Iterable[TaskStats]) -> Iterator[str]:
    """Yield a line for each component and error: `store[1] waits for a dependency: 2 min 10 s, 14
    tries, last error: ConnectionRefusedError: …`. Tasks with the same error share a line."""
    groups: dict[tuple[str, WaitKind, str], list[TaskStats]] = {}
    for task in tasks:
        if (wait := task.health.wait) is not None:
            key = (task.component, wait.kind, task_error_text(wait.error))
            groups.setdefault(key, []).append(task)
    for (component, kind, text), alike in groups.items():
        waits = [task.health.wait for task in alike if task.health.wait is not None]
        tries, is_single = sum(wait.tries for wait in waits), len(waits) == 1
        who, what = f"{len(waits)} tasks of {component}", _SEVERAL_WAIT[kind]
        if is_single:
            who, what = f"{component}[{waits[0].error.index}]", _ONE_WAITS[kind]
        if kind is WaitKind.UNAVAILABLE and not any(wait.reached for wait in waits):
            what += f" that {component} has never reached"
        why = f"{number_of(tries, 'try', 'tries')}, last error: {text}"
        for_s = elapsed(max(wait.for_s for wait in waits))
        yield f"{who} {what}: {for_s}, {text if kind is WaitKind.FILLING else why}"


def unreached(snapshot: Snapshot) -> str | None:
    """Return a message if a component has waited `_FIRST_REACH_S` for a dependency that none of its
    tasks ever reached, with the traceback if there is one; else None."""
    for task in snapshot.waiting():
        wait = task.health.wait
        if wait is None or wait.kind is not WaitKind.UNAVAILABLE or wait.reached:
            continue
        if wait.for_s >= _FIRST_REACH_S:
            traceback = f"\n{wait.error.traceback}" if wait.error.traceback else ""
            return (
                f"{task.component} has never reached a dependency that it needs, in "
                f"{elapsed(wait.for_s)} and {wait.tries:,} tries. Start the dependency, or correct "
                "its address, and run again (`sunshower submit` continues trying). The last error: "
                f"{wait.error.line}{traceback}"
            )
    return None


class SubmittedStart:
    """Watches a topology that was just submitted, until it is known whether it works."""

    def __init__(self, plan: Plan, *, active: bool = True) -> None:
        self._plan, self._active = plan, active
        self._open_since_s: float | None = None

    def is_decided(self, snapshot: Snapshot, now: float) -> bool:
        """Return whether nothing is to be expected of further snapshots: all tasks are open and, if
        active, a tuple of each spout is processed, or it emits none; or a task is quarantined, and
        none is still being opened. `now`: seconds on a monotonic clock."""
        if _unopened(snapshot, self._plan) or snapshot.waiting():
            self._open_since_s = None
            return False
        if self._open_since_s is None:
            self._open_since_s = now
        if snapshot.degraded or not self._active:
            return True
        is_idle = now - self._open_since_s >= _IDLE_S
        return all(self._works(snapshot, spout.id, is_idle) for spout in self._plan.graph.spouts)

    def _works(self, snapshot: Snapshot, spout: str, is_idle: bool) -> bool:
        counts = snapshot.component(spout)
        if counts.emitted or counts.failed:
            return counts.acked > 0
        return is_idle or all(task.done for task in snapshot.tasks_of(spout))


def start_problems(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Return a line for each thing that keeps a topology from its work that was just submitted:
    waits, quarantined and unopened tasks, workers without a node; or, without those, spouts of
    which all tuples fail."""
    lines = [*_task_problems(snapshot), *_opening_problems(snapshot, plan)]
    return lines or [*_failing_spouts(snapshot, plan)]


def _opening_problems(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    waiting = {task.task for task in snapshot.waiting()}
    stats = {task.task: task for task in snapshot.tasks()}
    silent: list[str] = []
    blocked = {call.worker for call in snapshot.stuck.values()}  # these have their lines
    blocked |= {call.worker for call in snapshot.ended.values()}
    for task in _unopened(snapshot, plan):
        reported = stats.get(task.id)
        if task.id in waiting or (reported is None and task.worker in blocked):
            continue
        if reported is not None and reported.health.last:
            last = reported.health.last[-1]
            tries = number_of(reported.health.errors, "try", "tries")
            yield f"{task.name} cannot be opened: {tries}, the last error: {last.line}"
        elif task.worker not in snapshot.silent:
            silent.append(task.name)
    if silent:
        yield (
            f"{', '.join(silent)} {'is' if len(silent) == 1 else 'are'} not open yet, or in the "
            "first call: user code of the worker has not returned; `sunshower profile "
            f"{plan.graph.id}` shows where it is"
        )


def _failing_spouts(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    for spout in plan.graph.spouts:
        counts = snapshot.component(spout.id)
        if counts.failed and not counts.acked:
            group = batch_group_of(spout.id)
            what = f"tuple of spout {spout.id}" if group is None else f"batch of {group}"
            groups = [group for task in snapshot.tasks_of(spout.id) for group in task.failures]
            newest = max(groups, key=lambda group: group.last_s, default=None)
            why = "" if newest is None else f", the last: {newest.failure}"
            times = number_of(counts.failed, "failure")
            yield f"no {what} was processed yet: {times}{why}"


def _unopened(snapshot: Snapshot, plan: Plan) -> list[Task]:
    """The tasks with user code that are neither open nor quarantined."""
    opened = {
        task.task
        for task in snapshot.tasks()
        if task.health.standing is not Standing.WAITING and task.health.wait is None
    }
    components = plan.graph.components  # acker shards have no user code
    return [t for t in plan.tasks if t.component in components and t.id not in opened]


@dataclass
class _Outage:
    """One component's wait, from its first waiting task to the last that continues."""

    since_s: float
    tasks: set[int] = field(default_factory=set)  # that still wait
    shown: set[WaitKind] = field(default_factory=set)  # the kinds already reported


class WaitNews:
    """Reports when components begin to wait and when they continue, each at most every ten
    seconds. `components`: None, all of them."""

    def __init__(self, components: Container[str] | None = None) -> None:
        self._components = components
        self._outages: dict[str, _Outage] = {}
        self._quiet_until_s: dict[str, float] = {}

    def see(self, snapshot: Snapshot, now: float) -> Iterator[str]:
        """Yield the lines that are new with this snapshot. `now`: seconds on a monotonic clock."""
        waiting: dict[str, list[TaskStats]] = {}
        for task in snapshot.waiting():
            if self._components is None or task.component in self._components:
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
        """A task that is not open yet, or whose worker has just died, still waits."""
        outage = self._outages[component]
        for task in snapshot.tasks():
            is_waiting = task.health.wait or task.health.standing is Standing.WAITING
            if task.task in outage.tasks and not is_waiting:
                outage.tasks.remove(task.task)
        if outage.tasks:
            return
        del self._outages[component]
        quarantined = {error.component for error in snapshot.degraded.values()}
        if outage.shown and component not in quarantined:
            yield f"{component} continues, after {elapsed(now - outage.since_s)}"


def task_error_text(error: TaskError) -> str:
    """Return the first line of an error without its task: `ConnectionRefusedError: …`."""
    place = f"{error.component}[{error.index}]"
    if error.line.startswith(f"{place}: "):
        return error.line.removeprefix(f"{place}: ")
    before, raised, text = error.line.partition(f"{place} raised ")
    return text if raised else before


def current_problems(snapshot: Snapshot) -> Iterator[str]:
    """Yield an upgrade that did not happen, the tasks that wait, hang or are quarantined, workers
    that have no node, are silent or do not reach each other, and workers without crash reports."""
    if (change := snapshot.unchanged) is not None:
        yield f"{unchanged_title(change)}: {change.why.partition(chr(10))[0]}"
    yield from _task_problems(snapshot)
    without: dict[str, list[int]] = {}
    for number, worker in sorted(snapshot.workers.items()):
        if worker.crash_reports is not None:
            without.setdefault(worker.crash_reports, []).append(number)
    for why, workers in without.items():
        names = f"worker{'s'[: len(workers) != 1]} {', '.join(map(str, workers))}"
        yield f"no crash reports from {names}, so poison that ends a process is not found: {why}"


def unchanged_title(change: Unchanged) -> str:
    """Say that a change did not happen, and when: `the upgrade at 14:03:05 did not happen`."""
    at = "" if change.at_s is None else f" at {time_of_day(change.at_s)}"
    return f"the {change.command}{at} did not happen"


def _task_problems(snapshot: Snapshot) -> Iterator[str]:
    """Yield the same without crash reports: what keeps tasks from their work."""
    yield from wait_lines(task for task in snapshot.waiting() if task.task not in snapshot.degraded)
    yield from map(str, snapshot.stuck.values())
    for id, call in snapshot.ended.items():
        if id not in snapshot.degraded:
            yield f"a call of {call.component}[{call.task}] has ended its process: {call.reason}"
    yield from snapshot.unplaced
    for number, for_s in sorted(snapshot.silent.items()):
        if number in snapshot.without_room:
            continue
        yield (
            f"worker {number} has been silent for {elapsed(for_s)}: it is stopped, cut off or does "
            "not start, or its user code holds the interpreter's lock. After worker_timeout_s it "
            "is replaced, again and again if need be"
        )
    for number, worker in sorted(snapshot.workers.items()):
        for peer, for_s in sorted(worker.links.items()):
            yield (
                f"worker {number} has had no answer from worker {peer} for {elapsed(for_s)}; what "
                "it sends waits"
            )
    yield from map(quarantine_line, snapshot.degraded.values())


def problems(snapshot: Snapshot) -> Iterator[str]:
    """Yield the same, and the tasks that raised errors outside of tuple processing."""
    yield from current_problems(snapshot)
    waiting = {task.task for task in snapshot.waiting()}
    for task in snapshot.tasks():
        if task.health.last and task.task not in snapshot.degraded and task.task not in waiting:
            last = task.health.last[-1]
            times = number_of(task.health.errors, "error")
            yield f"{last.component}[{last.index}]: {times}, the last: {last.line}"


def quarantine_line(error: TaskError) -> str:
    """Describe a quarantined task."""
    where = f"{error.component}[{error.index}] on worker {error.worker}"
    return f"{where} is quarantined (on probation: tried again, every 30 s at most): {error.line}"


_GROUPS_MAX = 8
_EXAMPLE_BYTES = 200


def failure_lines(snapshot: Snapshot) -> Iterator[str]:
    """Yield two lines for each group of failures: what fails where, how often and since when; and
    the newest one with its record."""
    groups = snapshot.failure_groups()
    for group in groups[:_GROUPS_MAX]:
        failure = group.failure
        times = f"{time_of_day(group.first_s)} to {time_of_day(group.last_s)}"
        where = failure.component or "unknown place"
        yield (
            f"{where}: {group.count:,} failed, {group.rate:.1f}/s, {times}: "
            f"{normalised(failure.reason) or failure.cause}"
        )
        record = f", record {clip(group.example, _EXAMPLE_BYTES)}" if group.example else ""
        yield f"    such as {failure.cause} of message {clip(group.message_id, 80)}{record}"
        if group.in_common:
            yield f"    {group.looked} of these records have in common: {group.in_common}"
    if (more := len(groups) - _GROUPS_MAX) > 0:
        yield f"{number_of(more, 'further group')} of failures"


def failure_fields(group: FailureGroup) -> dict[str, Any]:
    """A group of failures as plain values."""
    failure = group.failure
    return {
        "component": failure.component or None,
        "cause": failure.cause.value,
        "exception": failure.exception,
        "message": normalised(failure.reason),
        "count": group.count,
        "rate": group.rate,
        "first_s": group.first_s,
        "last_s": group.last_s,
        "in_common": group.in_common,
        "looked": group.looked,
        "example": {
            "message": group.message_id,
            "record": group.example,
            "reason": failure.reason,
            "traceback": failure.traceback,
            "task": failure.task if failure.task >= 0 else None,
            "worker": failure.worker if failure.worker >= 0 else None,
        },
    }


def expired_lines(graph: Graph, snapshot: Snapshot) -> Iterator[str]:
    """Yield a line for each component that dropped inputs of trees that had failed."""
    for id in graph.components:
        if count := snapshot.component(id).expired:
            inputs = number_of(count, "expired input")
            yield f"{id}: {inputs} dropped, whose trees had failed already"


def late_lines(graph: Graph, snapshot: Snapshot) -> Iterator[str]:
    """Yield a line for each window and join with late records, and for each spout with records
    whose event times are too far in the future."""
    for id in graph.components:
        counts = snapshot.component(id)
        if counts.ahead:
            records = number_of(counts.ahead, "record")
            yield f"{id}: {records} ahead of the clock, which {_DO_NOT_MOVE}"
        if counts.late:
            records = number_of(counts.late, "late record")
            by = f"{counts.late_by:,.6g}"
            yield f"{id}: {records}; the worst came {by} after its window had ended"
        yield from (f"{id}: {note}" for note in snapshot.event_time_notes(id))


def dead_letter_lines(graph: Graph, snapshot: Snapshot) -> Iterator[str]:
    """Yield a line for each spout with dead letters and each batch group with skipped batches: how
    many, and where they are."""
    for spout in graph.spouts:
        if dead := snapshot.component(spout.id).dead:
            yield f"{number_of(dead, 'dead letter')} of {spout.id}, {_place(graph, spout.id)}"
        if (group := batch_group_of(spout.id)) is not None:
            skipped = int(snapshot.figures(spout.id).get("batches skipped", 0))
            rows = snapshot.component(letters_id(group)).acked
            if skipped or rows:  # a restarted coordinator starts counting at 0
                yield (
                    f"{number_of(skipped, 'batch', 'batches')} of {group} skipped, all attempts "
                    f"failed; {number_of(rows, 'row')} {_place(graph, group)}"
                )


def _place(graph: Graph, id: str) -> str:
    """Say where dead letters are. A graph without code has no paths."""
    sink = graph.components.get(letters_id(id))
    if sink is None:
        return 'on its stream "dead_letters"'
    path = getattr(sink.implementation, "path", None)
    return f"in {path}" if path is not None else f"written by {sink.id}"
