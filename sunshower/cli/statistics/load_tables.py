"""Tables of the load of components in a window: rates, capacity, time without credit, latencies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.table import Table

from sunshower.cli.formatting import duration, elapsed, new_table
from sunshower.runtime.events.latencies import Latencies, LatencyKind
from sunshower.runtime.events.metrics import Activity, Counts, Snapshot
from sunshower.runtime.events.time_windows import ALL, NAMES
from sunshower.runtime.plan import Plan
from sunshower.topologies.graph import Component, Graph

_NOW = ("per s", "failed", "capacity", "blocked", "queued", "wait p99", "run p99", "p99")
_WINDOWS = ("per s", "failed", "capacity", "blocked", "p50", "p90", "p99", "max")
_TASKS = ("worker", "standing", "done", "failed", "open", "wait p99", "run p99", "p99")
_PLACES_MAX = 8


def activities(
    snapshot: Snapshot, components: Sequence[str], window: str, up_s: float
) -> dict[str, Activity]:
    """What each component did in a window; of a window that is not known yet, since the beginning,
    `up_s` ago."""
    known = snapshot.windows.get(window, {})
    return {id: known[id] if id in known else snapshot.activity(id, up_s) for id in components}


def window_title(window: str, found: Mapping[str, Activity]) -> str:
    """The name of a window, with its length."""
    for_s = max((one.for_s for one in found.values()), default=0.0)
    return f"{'since the beginning' if window == ALL else 'the last'} {elapsed(for_s)}"


def load_table(
    graph: Graph,
    snapshot: Snapshot,
    found: Mapping[str, Activity],
    title: str,
    *,
    by_load: bool = False,
) -> Table:
    """One row for each component: what it did in a window, and what waits for it now; `by_load`:
    the busiest one first."""
    table = new_table("component", numbers=_NOW, title=title)
    table.padding = (0, 0, 0, 0)
    components = list(graph.components.values())
    if by_load:
        components.sort(key=lambda one: -found[one.id].capacity(one.parallelism))
    for component in components:
        activity = found[component.id]
        is_spout = component.level.is_spout
        queued = sum(task.queued for task in snapshot.tasks_of(component.id))
        table.add_row(
            f"{component.id} × {component.parallelism}",
            *_shares(activity, component, graph),
            "" if is_spout else f"{queued:,}",
            _percentile(activity.latencies, LatencyKind.QUEUE, 99),
            _percentile(activity.latencies, LatencyKind.EXECUTE, 99),
            _percentile(activity.latencies, LatencyKind.COMPLETE, 99),
            style="bold" if activity.counts.failed else None,
        )
    return table


def windows_table(graph: Graph, snapshot: Snapshot, component: Component, up_s: float) -> Table:
    """One row for each window of a component. Latencies: of spouts until trees are complete, of
    bolts the time in their code."""
    table = new_table("window", numbers=_WINDOWS, title=f"{component.id} × {component.parallelism}")
    table.padding = (0, 0, 0, 0)
    kind = LatencyKind.COMPLETE if component.level.is_spout else LatencyKind.EXECUTE
    for window in NAMES:
        found = activities(snapshot, [component.id], window, up_s)
        activity = found[component.id]
        percentiles = (
            _percentile(activity.latencies, kind, percent) for percent in (50, 90, 99, 100)
        )
        shares = _shares(activity, component, graph)
        table.add_row(f"{window}: {elapsed(activity.for_s)}", *shares, *percentiles)
    return table


def tasks_table(plan: Plan, snapshot: Snapshot, component: Component) -> Table:
    """One row for each task: what it has done in its current process, and how many entries its
    state has."""
    places = {task.id: task for task in plan.tasks_of(component.id)}
    tasks = snapshot.tasks_of(component.id)
    has_state = any(task.entries is not None for task in tasks)
    table = new_table("task", numbers=(*_TASKS, *["entries"] * has_state))
    table.padding = (0, 0, 0, 0)
    for task in tasks:
        if (place := places.get(task.task)) is None:
            continue
        counts, is_spout = task.counts, component.level.is_spout
        table.add_row(
            f"{component.id}[{place.index}]",
            f" {place.worker}",
            task.health.standing.value,
            f"{counts.acked if is_spout else counts.executed:,}",
            f"{counts.failed:,}",
            f"{counts.pending if is_spout else task.queued:,}",
            _percentile(task.latencies, LatencyKind.QUEUE, 99),
            _percentile(task.latencies, LatencyKind.EXECUTE, 99),
            _percentile(task.latencies, LatencyKind.COMPLETE, 99),
            *(["" if task.entries is None else f"{task.entries:,}"] if has_state else ()),
        )
    return table


def place_lines(graph: Graph, found: Mapping[str, Activity], when: str) -> Iterator[str]:
    """Yield a line for each cause and place of failures, the most frequent first."""
    counts = Counts.sum_of(found[spout.id].counts for spout in graph.spouts)
    ordered = sorted(counts.places.items(), key=lambda one: -one[1])
    for place, count in ordered[:_PLACES_MAX]:
        where = f" in {place.component}" if place.component else ""
        where += f"[{place.task}]" if place.task >= 0 else ""
        where += f" on worker {place.worker}" if place.worker >= 0 else ""
        yield f"{count:,} failed{where}: {place.cause} ({when})"
    if rest := sum(count for _, count in ordered[_PLACES_MAX:]):
        yield f"{rest:,} failed elsewhere ({when})"


def stream_lines(counts: Counts) -> Iterator[str]:
    """Yield a line for each output stream of a component, and for each input stream."""
    for stream, emitted in counts.emitted_to.items():
        sent = counts.transferred_to.get(stream, 0)
        bytes_ = counts.bytes_to.get(stream, 0)
        to = f", {bytes_:,} bytes to other workers" if bytes_ else ""
        yield f"stream {stream}: {emitted:,} emitted, {sent:,} transferred{to}"
    for source, executed in counts.executed_from.items():
        yield f"input {source.component}.{source.stream}: {executed:,} executed"


def watermark_lines(graph: Graph, snapshot: Snapshot) -> Iterator[str]:
    """Yield a line for each component with a watermark: how far it is behind, in event time."""
    for id in graph.components:
        found = snapshot.watermark(id)
        if found is not None and found[1] is not None:
            yield f"{id}: its watermark is {found[1]:,.6g} behind the newest event time"
        yield from (f"{id}: windows wait: {why}" for why in snapshot.watermark_holds(id))


def fill_lines(graph: Graph, snapshot: Snapshot) -> Iterator[str]:
    """Yield a line for each spout that waits until the tables of its joins are filled, and how far
    each of these is."""
    for spout in graph.spouts:
        awaited = {id for task in snapshot.tasks_of(spout.id) for id in task.awaits}
        for id in sorted(awaited):
            tasks = snapshot.tasks_of(id)
            read, acked = sum(t.has_filled for t in tasks), snapshot.component(id).acked
            yield (
                f"{spout.id} waits until the tables of its joins have the records of {id}: "
                f"{acked:,} are processed, {read} of {len(tasks)} tasks have all"
            )


def _shares(activity: Activity, component: Component, graph: Graph) -> Iterator[str]:
    counts, tasks = activity.counts, component.parallelism
    done = counts.executed
    if component.level.is_spout:
        done = counts.acked if graph.config.tracked else counts.emitted
    yield f" {done / max(activity.for_s, 1e-9):,.0f}"
    yield f"{counts.failed:,}"
    yield f"{activity.capacity(tasks):.0%}"
    yield f"{activity.blocked(tasks):.0%}"


def _percentile(
    latencies: Mapping[LatencyKind, Latencies], kind: LatencyKind, percent: float
) -> str:
    seconds = latencies[kind].percentile(percent) if kind in latencies else None
    return "" if seconds is None else duration(seconds)
