"""What is wrong with a running topology, in a line each; and what was put aside or dropped."""

from __future__ import annotations

from collections.abc import Iterator

from sunshower.cli.waits import wait_lines
from sunshower.runtime.metrics import Snapshot
from sunshower.runtime.usercode import TaskError
from sunshower.topologies.graph import Graph
from sunshower.trident.attempts import group_of, letters_id


def present_troubles(snapshot: Snapshot) -> Iterator[str]:
    """Tasks that wait, do not return or are quarantined, and workers without crash reports."""
    yield from wait_lines(task for task in snapshot.waiting() if task.task not in snapshot.degraded)
    yield from map(str, snapshot.stuck.values())
    yield from map(quarantined, snapshot.degraded.values())
    without: dict[str, list[int]] = {}
    for number, worker in sorted(snapshot.workers.items()):
        if worker.crash_reports is not None:
            without.setdefault(worker.crash_reports, []).append(number)
    for why, workers in without.items():
        names = f"worker{'s'[: len(workers) != 1]} {', '.join(map(str, workers))}"
        yield f"no crash reports from {names}, so poison that ends a process is not found: {why}"


def troubles(snapshot: Snapshot) -> Iterator[str]:
    """The same, and the tasks that have raised where no tuple is at fault."""
    yield from present_troubles(snapshot)
    waiting = {task.task for task in snapshot.waiting()}
    for task in snapshot.tasks():
        if task.health.last and task.task not in snapshot.degraded and task.task not in waiting:
            last, count = task.health.last[-1], task.health.errors
            times = f"{count} error{'s'[: count != 1]}"
            yield f"{last.component}[{last.index}]: {times}, the last: {last.line}"


def quarantined(error: TaskError) -> str:
    """A task that is on probation, in one line."""
    where = f"{error.component}[{error.index}] on worker {error.worker}"
    return f"{where} is quarantined (on probation: tried again, every 30 s at most): {error.line}"


def expired(graph: Graph, snapshot: Snapshot) -> Iterator[str]:
    """A line for each component that has dropped inputs of trees that had failed already."""
    for id in graph.components:
        if count := snapshot.component(id).expired:
            inputs = "input" if count == 1 else "inputs"
            yield f"{id}: {count:,} expired {inputs} dropped, whose trees had failed already"


def put_aside(graph: Graph, snapshot: Snapshot) -> Iterator[str]:
    """A line for each spout with dead letters, and each batch group that has skipped batches: how
    many there are, and where."""
    for spout in graph.spouts:
        if dead := snapshot.component(spout.id).dead:
            plural = "dead letter" if dead == 1 else "dead letters"
            yield f"{dead:,} {plural} of {spout.id}, {_place(graph, spout.id)}"
        if (group := group_of(spout.id)) is not None:
            skipped = int(snapshot.figures(spout.id).get("batches skipped", 0))
            rows = snapshot.component(letters_id(group)).acked
            if skipped or rows:  # batches of earlier lives of the coordinator are not counted
                yield (
                    f"{skipped:,} batch{'es' * (skipped != 1)} of {group} skipped, all attempts "
                    f"failed; {rows:,} row{'s' * (rows != 1)} {_place(graph, group)}"
                )


def _place(graph: Graph, id: str) -> str:
    """Where the dead letters of a spout or a batch group are. A graph without code has no paths."""
    sink = graph.components.get(letters_id(id))
    if sink is None:
        return 'on its stream "dead_letters"'
    path = getattr(sink.implementation, "path", None)
    return f"in {path}" if path is not None else f"written by {sink.id}"
