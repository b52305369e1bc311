"""What is left on the screen when a run has ended: the last table, and one sentence."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group
from rich.text import Text

from sunshower.cli.display import Display, duration, quarantined
from sunshower.cli.session import Ended
from sunshower.runtime.metrics import Counts, Snapshot
from sunshower.topologies.graph import Graph
from sunshower.trident.attempts import group_of, letters_id


def summary(graph: Graph, ended: Ended) -> Group:
    """The totals of a run, with rates that are averages over all of it."""
    title = f"{graph.id}  ·  totals"
    table = Display(graph).table(ended.snapshot, title, average_s=ended.seconds)
    bad = [Text(line, style="red") for line in troubles(ended.snapshot)]
    return Group(table, *bad, Text("\n".join([sentence(graph, ended), *causes(graph, ended)])))


def troubles(snapshot: Snapshot) -> Iterator[str]:
    """A line for each task that is quarantined, or has raised where no tuple is to blame; and for
    each batch group that has put rows aside."""
    for error in snapshot.degraded.values():
        yield quarantined(error)
    for task in snapshot.tasks():
        if task.health.last and task.task not in snapshot.degraded:
            last, count = task.health.last[-1], task.health.errors
            times = f"{count} error{'s'[: count != 1]}"
            yield f"{last.component}[{last.index}]: {times}, the last: {last.line}"
    yield from skipped_batches(snapshot)


def skipped_batches(snapshot: Snapshot) -> Iterator[str]:
    """A line for each batch group with rows among the dead letters: what an earlier life of its
    coordinator has skipped is not among the batches that are counted here."""
    for component in dict.fromkeys(task.component for task in snapshot.tasks()):
        group = group_of(component)
        if group is None:
            continue
        batches = int(snapshot.figures(component).get("batches skipped", 0))
        rows = snapshot.component(letters_id(group)).acked
        if batches or rows:
            skipped = f"{batches:,} batch{'es' * (batches != 1)} skipped, all attempts failed"
            letters = f"{rows:,} row{'s' * (rows != 1)} of them among the dead letters"
            yield f"batches of {group}: {skipped}; {letters}"


def sentence(graph: Graph, ended: Ended) -> str:
    """Such as: Finished in 12 s: 858,233 tuples taken in, all of them acked."""
    counts = spouts(graph, ended.snapshot)
    taken = taken_in(graph, ended.snapshot)
    parts = [f"{taken:,} {'tuple' if taken == 1 else 'tuples'} taken in"]
    if graph.config.tracked:
        acked = counts.acked - counts.dead
        parts.append("all of them acked" if acked == taken else f"{acked:,} acked")
        if counts.dead:
            parts.append(f"{counts.dead:,} among the dead letters")
        if counts.failed:
            parts.append(f"{counts.failed:,} failed on the way, {counts.replayed:,} replayed")
    else:
        parts.append("untracked: nobody knows whether they arrived")
    verb = "Drained" if ended.drained else "Finished"
    return f"{verb} after {duration(ended.seconds)}: {', '.join(parts)}."


def causes(graph: Graph, ended: Ended) -> Iterator[str]:
    """A line for each cause of failures, the most frequent first."""
    found = spouts(graph, ended.snapshot).causes
    for cause, count in sorted(found.items(), key=lambda pair: -pair[1]):
        yield f"  failed, {cause}: {count:,}"


def taken_in(graph: Graph, snapshot: Snapshot) -> int:
    """How many tuples the spouts have emitted for the first time."""
    counts = spouts(graph, snapshot)
    return counts.emitted - counts.replayed


def spouts(graph: Graph, snapshot: Snapshot) -> Counts:
    """The sum over all spouts."""
    return sum((snapshot.component(spout.id) for spout in graph.spouts), Counts())
