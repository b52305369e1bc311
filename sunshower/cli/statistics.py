"""Tables of the load of components in a window: rates, capacity, time without credit, latencies."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

from rich.table import Table

from sunshower.cli.formatting import duration, elapsed, new_table, number_of
from sunshower.cli.health import failure_fields, task_error_text
from sunshower.runtime.control.loads import BUSY
from sunshower.runtime.control.overview import Overview
from sunshower.runtime.events.metrics import (
    ALL,
    NAMES,
    WINDOWS_S,
    Activity,
    Counts,
    Latencies,
    LatencyKind,
    Snapshot,
    TaskStats,
)
from sunshower.runtime.events.progress import TopologyProgress
from sunshower.runtime.plan import Plan
from sunshower.topologies.graph import Component, Graph, is_internal
from sunshower.trident.coordination.attempts import batch_group_of
from sunshower.trident.coordination.batch_scheduler import Status

_PLACES_MAX = 8
_NAME_MAX = 18  # letters of a name on a line
_OLD_S = 1.0  # a younger open tree is not worth a line


def activities(
    snapshot: Snapshot, components: Sequence[str], window: str, up_s: float
) -> dict[str, Activity]:
    """What each component did in a window; of a window that is not known yet, since the beginning,
    `up_s` ago."""
    known = snapshot.windows.get(window, {})
    return {id: known[id] if id in known else snapshot.activity(id, up_s) for id in components}


def window_title(window: str, activity_of: Mapping[str, Activity]) -> str:
    """The name of a window, with its length."""
    for_s = max((activity.for_s for activity in activity_of.values()), default=0.0)
    return f"{'since the beginning' if window == ALL else 'the last'} {elapsed(for_s)}"


@dataclass(frozen=True)
class Row:
    """What the numbers of a row are made from: a component in a time, or one of its tasks."""

    is_spout: bool
    counts: Counts
    latencies: Mapping[LatencyKind, Latencies]
    rate: float = 0.0  # per second
    capacity: float = 0.0  # 0 to 1; so is `blocked`
    blocked: float = 0.0
    queued: int = 0
    entries: int | None = None
    kind: LatencyKind = LatencyKind.COMPLETE  # of p50, p90, p99 and max

    def percentile(self, percent: float, kind: LatencyKind | None = None) -> str:
        """A latency as text; empty if nothing was measured."""
        latencies = self.latencies.get(kind or self.kind)
        seconds = None if latencies is None else latencies.percentile(percent)
        return "" if seconds is None else duration(seconds)


COLUMNS: Mapping[str, Callable[[Row], str]] = {
    "emitted": lambda row: f"{row.counts.emitted:,}",
    "acked": lambda row: f"{row.counts.acked:,}",
    "failed": lambda row: f"{row.counts.failed:,}",
    "replayed": lambda row: f"{row.counts.replayed:,}" if row.is_spout else "",
    "pending": lambda row: f"{row.counts.pending:,}" if row.is_spout else "",
    "per s": lambda row: f"{row.rate:,.0f}",
    "capacity": lambda row: f"{row.capacity:.0%}",
    "blocked": lambda row: f"{row.blocked:.0%}",
    "queued": lambda row: "" if row.is_spout else f"{row.queued:,}",
    "wait p99": lambda row: row.percentile(99, LatencyKind.QUEUE),
    "run p99": lambda row: row.percentile(99, LatencyKind.EXECUTE),
    "p50": lambda row: row.percentile(50),
    "p90": lambda row: row.percentile(90),
    "p99": lambda row: row.percentile(99),
    "max": lambda row: row.percentile(100),
    "done": lambda row: f"{row.counts.acked if row.is_spout else row.counts.executed:,}",
    "open": lambda row: f"{row.counts.pending if row.is_spout else row.queued:,}",
    "entries": lambda row: "" if row.entries is None else f"{row.entries:,}",
}
ORDERS: Mapping[str, Callable[[Row], float]] = {
    "capacity": lambda row: row.capacity,
    "per s": lambda row: row.rate,
    "failed": lambda row: row.counts.failed,
    "queued": lambda row: row.queued,
}
OF_TOP = ("per s", "failed", "capacity", "blocked", "queued", "wait p99", "run p99", "p99")
_OF_WINDOWS = ("per s", "failed", "capacity", "blocked", "p50", "p90", "p99", "max")
_OF_TASKS = ("done", "failed", "open", "wait p99", "run p99", "p99")


def numbers_table(first: str, columns: Sequence[str], title: str | None = None) -> Table:
    """An empty table of names, and of numbers close to each other."""
    table = new_table(first, numbers=columns, title=title)
    table.padding = (0, 0, 0, 0)
    return table


def add_row(
    table: Table, name: str, columns: Sequence[str], row: Row, style: str | None = None
) -> None:
    """Add these columns of a row, after its name."""
    first, *others = (COLUMNS[column](row) for column in columns)
    table.add_row(_in_lines(name), f" {first}", *others, style=style)


def _in_lines(name: str) -> str:
    """A name, with a long one broken after its separators, and not within a word."""
    lines = [""]
    for part in re.findall(r"[^-_.\s]*[-_.\s]*", name):
        if lines[-1] and len(lines[-1] + part) > _NAME_MAX:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)


def done_by(component: Component, counts: Counts, graph: Graph) -> int:
    """What the rate of a component counts: executed inputs; of spouts, complete trees or, without
    trees, emits."""
    if not component.level.is_spout:
        return counts.executed
    return counts.acked if graph.config.tracked else counts.emitted


def _row_of(
    component: Component,
    activity: Activity,
    graph: Graph,
    queued: int = 0,
    kind: LatencyKind = LatencyKind.COMPLETE,
    rows_s: float | None = None,
) -> Row:
    """`rows_s`: of a step of exactly-once batches, in place of its inputs."""
    tasks, done = component.parallelism, done_by(component, activity.counts, graph)
    return Row(
        component.level.is_spout,
        activity.counts,
        activity.latencies,
        rate=done / max(activity.for_s, 1e-9) if rows_s is None else rows_s,
        capacity=activity.capacity(tasks),
        blocked=activity.blocked(tasks),
        queued=queued,
        kind=kind,
    )


def load_table(
    graph: Graph,
    snapshot: Snapshot,
    activity_of: Mapping[str, Activity],
    title: str,
    *,
    order: str | None = None,
    internals: bool = False,
) -> Table:
    """One row for each component: what it did in a window, and what waits for it now; `order`:
    of ORDERS, the highest first; `internals`: with the coordinators of batches."""
    table = numbers_table("component", OF_TOP, title)
    every = graph.components.values()
    components = [each for each in every if internals or not is_internal(each.id)]
    rows = []
    for component in components:
        activity = activity_of[component.id]
        queued = sum(task.queued for task in snapshot.tasks_of(component.id))
        rows_s = None if snapshot.progress is None else snapshot.progress.rows_s.get(component.id)
        row = _row_of(component, activity, graph, queued, rows_s=rows_s)
        rows.append((f"{component.id} × {component.parallelism}", row))
    if order is not None:
        rows.sort(key=lambda pair: -ORDERS[order](pair[1]))
    for name, row in rows:
        style = "red" if row.counts.failed else "yellow" if row.capacity >= BUSY else None
        add_row(table, name, OF_TOP, row, style)
    return table


def windows_table(graph: Graph, snapshot: Snapshot, component: Component, up_s: float) -> Table:
    """One row for each window of a component. Latencies: of spouts until trees are complete, of
    bolts the time in their code."""
    title = f"{component.id} × {component.parallelism}"
    table = numbers_table("window", _OF_WINDOWS, title)
    kind = LatencyKind.COMPLETE if component.level.is_spout else LatencyKind.EXECUTE
    for window in NAMES:
        activity = activities(snapshot, [component.id], window, up_s)[component.id]
        row = _row_of(component, activity, graph, kind=kind)
        add_row(table, f"{window}: {elapsed(activity.for_s)}", _OF_WINDOWS, row)
    return table


def tasks_table(plan: Plan, snapshot: Snapshot, component: Component) -> Table:
    """One row for each task: what it has done in its current process, and how many entries its
    state has."""
    places = {task.id: task for task in plan.tasks_of(component.id)}
    tasks = snapshot.tasks_of(component.id)
    has_state = any(task.entries is not None for task in tasks)
    columns = (*_OF_TASKS, *["entries"] * has_state)
    table = numbers_table("task", ("worker", "standing", *columns))
    for task in tasks:
        if (place := places.get(task.task)) is None:
            continue
        row = Row(
            component.level.is_spout,
            task.counts,
            task.latencies,
            queued=task.queued,
            entries=task.entries,
        )
        table.add_row(
            f"{component.id}[{place.index}]",
            f" {place.worker}",
            task.health.standing.value,
            *(COLUMNS[column](row) for column in columns),
        )
    return table


def place_lines(graph: Graph, activity_of: Mapping[str, Activity], when: str) -> Iterator[str]:
    """Yield a line for each cause and place of failures, the most frequent first."""
    counts = Counts.sum_of(activity_of[spout.id].counts for spout in graph.spouts)
    ordered = sorted(counts.places.items(), key=lambda pair: -pair[1])
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


def progress_lines(snapshot: Snapshot) -> Iterator[str]:
    """Yield lines that say whether a topology keeps up: why it is not faster, how far each source
    is behind, its oldest open trees, and the age of its event time."""
    if (progress := snapshot.progress) is None:
        return
    yield f"why is it not faster? {progress.limit.text}"
    for source in progress.sources:
        lag = "" if source.lag is None else f"{number_of(int(source.lag), 'record')} behind, "
        yield f"{source.component}: {lag}{source.trend}"
    for id, loads in progress.busy.items():
        if loads.is_uneven and not is_internal(id):
            often = f"{loads.top:.0%} of the time, all of them {loads.mean:.0%}"
            yield f"{id}: its busiest task runs {often}"
    if old := {id: age_s for id, age_s in progress.oldest_s.items() if age_s >= _OLD_S}:
        id = max(old, key=lambda name: old[name])
        what = "tuple" if (group := batch_group_of(id)) is None else "batch"
        yield f"{group or id}: its oldest open {what} is {elapsed(old[id])} old"
    if progress.event_age_s is not None:
        yield f"event time is {_behind_clock(progress.event_age_s)} the clock"


def _behind_clock(age_s: float) -> str:
    return f"{elapsed(age_s)} behind" if age_s >= 0 else f"{elapsed(-age_s)} ahead of"


def progress_fields(progress: TopologyProgress | None) -> dict[str, Any] | None:
    """Whether a topology keeps up, as plain values; None: that is not known."""
    if progress is None:
        return None
    return {
        "limit": progress.limit._asdict(),
        "bottleneck": progress.bottleneck or None,
        "sources": [source._asdict() for source in progress.sources],
        "oldest_s": dict(progress.oldest_s),
        "rows_s": dict(progress.rows_s),
        "event_age_s": progress.event_age_s,
        "busy": {id: loads._asdict() for id, loads in progress.busy.items()},
    }


def watermark_lines(graph: Graph, snapshot: Snapshot) -> Iterator[str]:
    """Yield a line for each component with a watermark: how far it is behind, in event time."""
    for id in graph.components:
        watermark = snapshot.watermark(id)
        if watermark is not None and watermark[1] is not None:
            per_s = snapshot.per_s
            lag = f"{watermark[1]:,.6g} (in the unit of the field)"
            if per_s is not None:
                lag = duration(watermark[1] / per_s)
            yield f"{id}: its watermark is {lag} behind the newest event time"
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


# ---- batches -------------------------------------------------------------------------------------

_PHASES = [status.value for status in Status]
_SPARK_PHASES = ("waiting", "at Spark", "publishing")
_LAST = {"wait_s": "wait seconds", "hand_over_s": "hand-over seconds", "job_s": "job seconds",
         "mean_job_s": "mean job seconds"}  # fmt: skip


def batch_fields(snapshot: Snapshot, components: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Each group of batches: how many have ended, and those that are open, the oldest first."""
    for id in components:
        figures = snapshot.figures(id)
        if (group := batch_group_of(id)) is None or "txid" not in figures:
            continue
        batches = sorted(_open_batches(figures, "batch ").items(), key=lambda pair: int(pair[0]))
        yield {
            "group": group,
            "txid": int(figures["txid"]),
            "committed": int(figures["batches committed"]),
            "skipped": int(figures["batches skipped"]),
            "attempts_failed": int(figures["attempts failed"]),
            "open": [
                {
                    "txid": int(txid),
                    "phase": _PHASES[int(facts["phase"])],
                    "attempt": int(facts["attempt"]),
                    "age_s": facts["age seconds"],
                }
                for txid, facts in batches
            ],
            "recent": [
                {
                    "txid": int(txid),
                    "age_s": facts["age seconds"],
                    "process_s": facts["process seconds"],
                    "commit_s": facts["commit seconds"],
                }
                for txid, facts in _open_batches(figures, "ended ").items()
            ],
        }


def scaling_lines(snapshot: Snapshot) -> Iterator[str]:
    """A line for each number that follows the load: what it is, what it would be, and why."""
    for view in snapshot.scaling:
        what = f"{view.component} has {number_of(view.now, 'task')}"
        if not view.component:
            what = "there is 1 worker" if view.now == 1 else f"there are {view.now} workers"
        would = f", would be {view.wanted}" if view.wanted != view.now else ""
        yield f"{what}, between {view.least} and {view.most}{would}: {view.why}"


def batch_lines(snapshot: Snapshot) -> Iterator[str]:
    """A line for each group of batches that has figures."""
    for id in sorted({task.component for task in snapshot.tasks()}):
        group, figures = batch_group_of(id), snapshot.figures(id)
        if group is not None and figures:
            yield batch_line(group, figures, snapshot)


def batch_line(group: str, figures: Mapping[str, float], snapshot: Snapshot) -> str:
    """Describe the batches of a group, with the figures of its coordinator, such as: `batches of
    words: 17 committing (attempt 1, 512 rows, 0.4 s), 2 more begun; 16 committed; the last took
    0.35 + 0.05 s; 4,000 rows emitted, 12,000 behind`."""
    names = [name.removesuffix("/tasks") for name in figures if name.endswith("/tasks")]
    spouts = [snapshot.figures(name.removeprefix("spout ")) for name in names]
    txid, active = int(figures["txid"]), int(figures["batches active"])
    batch = _open_batches(figures, "batch ").get(str(txid))
    if batch is None:
        now = f"{txid} is the next"
    else:
        rows = sum(spout.get(f"batch {txid}/rows", 0) for spout in spouts)
        now = (
            f"{txid} {_PHASES[int(batch['phase'])]} (attempt {batch['attempt']:.0f}, "
            f"{rows:,.0f} rows, {batch['age seconds']:.1f} s)"
        )
        now += f", {active - 1} more begun" if active > 1 else ""
    done = f"{figures['batches committed']:,.0f} committed"
    for name, label in (("batches skipped", "skipped"), ("attempts failed", "attempts failed")):
        done += f", {figures[name]:,.0f} {label}" if figures[name] else ""
    parts = [now, done]
    if unavailable_s := figures.get("seconds unavailable"):
        parts.append(f"waiting for {unavailable_s:,.0f} s for a dependency that is away")
    if figures["batches committed"]:
        parts.append(
            f"the last took {figures['process seconds']:.2f} + {figures['commit seconds']:.2f} s"
        )
    parts.append(f"{sum(spout.get('rows emitted', 0) for spout in spouts):,.0f} rows emitted")
    if (behind := _behind(names, figures, snapshot)) is not None:
        parts[-1] += f", {behind} behind"
    return f"batches of {group}: {'; '.join(parts)}"


def _behind(names: list[str], figures: Mapping[str, float], snapshot: Snapshot) -> str | None:
    """The sum of the lags of all tasks of these spouts, or `unknown`: a task has died, or has not
    heard from its brokers. None: these spouts have no lag."""
    lags, are_all = list[float](), True
    for name in names:
        tasks = snapshot.tasks_of(name.removeprefix("spout "))
        known = [task.figures["lag"] for task in tasks if "lag" in task.figures]
        are_all = are_all and (not known or len(known) >= figures[f"{name}/tasks"])
        lags += known
    if not lags:
        return None
    return f"{sum(lags):,.0f}" if are_all and isfinite(sum(lags)) else "unknown"


def spark_fields(overview: Overview) -> Iterator[dict[str, Any]]:
    """Of each task that hands batches to Spark: what has ended, in sums, the seconds of the last
    batch (None: there is none), and the open ones, the oldest first."""
    places = {task.id: (task.index, task.worker) for task in overview.plan.tasks}
    for stats in overview.snapshot.tasks():
        figures = stats.figures
        if "spark failed" not in figures or stats.task not in places:
            continue
        index, worker = places[stats.task]
        batches = _open_batches(figures, "spark batch ").items()
        yield {
            "component": stats.component,
            "task": index,
            "worker": worker,
            "batches": int(figures["spark batches"]),
            "failed": int(figures["spark failed"]),
            "lost": int(figures["spark lost"]),
            "rows_in": int(figures["spark rows in"]),
            "rows_out": int(figures["spark rows out"]),
            **{key: figures.get(f"spark {name}") for key, name in _LAST.items()},
            "open": sorted(
                (_open_fields(*batch) for batch in batches), key=lambda item: -item["age_s"]
            ),
        }


def _open_fields(id: str, facts: Mapping[str, float]) -> dict[str, Any]:
    return {
        "batch": id,
        "phase": _SPARK_PHASES[int(facts["phase"])],
        "attempt": int(facts["attempt"]),
        "rows": int(facts["rows"]),
        "age_s": facts["age seconds"],
    }


def _open_batches(figures: Mapping[str, float], kind: str) -> dict[str, dict[str, float]]:
    """The facts of each open batch, by its id: of the figures `<kind><id>/<fact>`."""
    facts_of: dict[str, dict[str, float]] = {}
    for name, value in figures.items():
        id, slash, fact = name.removeprefix(kind).rpartition("/")
        if slash and name.startswith(kind):
            facts_of.setdefault(id, {})[fact] = value
    return facts_of


# ---- json status ---------------------------------------------------------------------------------

# The fields of `sunshower status --json`: all numbers of a topology, as plain values.
#
# Other programs read them, so names and meanings stay; docs/METRICS.md lists them.

_PERCENTS = (50, 90, 99)


def status_fields(
    overview: Overview,
    up_s: float,
    *,
    tasks: bool = True,
    windows: Collection[str] = NAMES,
) -> dict[str, Any]:
    """All fields, or those without single `tasks`, and with these `windows` of time only; `up_s`:
    since the topology was submitted."""
    snapshot = overview.snapshot
    places = {task.id: (task.index, task.worker) for task in overview.plan.tasks}
    return {
        "topology": snapshot.topology,
        "state": snapshot.state,
        "up_s": up_s,
        "restarts": snapshot.restarts,
        "progress": progress_fields(snapshot.progress),
        "error": overview.error,
        "unchanged": snapshot.unchanged and snapshot.unchanged._asdict(),
        "untracked": snapshot.untracked,
        "degraded": [error.story for error in snapshot.degraded.values()],
        "waiting": list(_waits(snapshot)),
        "silent": {str(worker): for_s for worker, for_s in snapshot.silent.items()},
        "unplaced": list(snapshot.unplaced),
        "stuck": [asdict(call) for call in snapshot.stuck.values()],
        "failures": [failure_fields(group) for group in snapshot.failure_groups()],
        "batches": list(batch_fields(snapshot, overview.plan.graph.components)),
        "spark": list(spark_fields(overview)),
        "scaling": [asdict(view) for view in snapshot.scaling],
        "components": {
            component.id: {
                "parallelism": component.parallelism,
                **component_numbers(snapshot, component.id, component.parallelism, up_s, windows),
                "tasks": [
                    {"task": places[task.task][0], "worker": places[task.task][1]}
                    | task_numbers(task)
                    for task in (snapshot.tasks_of(component.id) if tasks else ())
                    if task.task in places
                ],
            }
            for component in overview.plan.graph.components.values()
        },
        "workers": worker_fields(overview),
    }


def worker_fields(overview: Overview) -> list[dict[str, Any]]:
    """The workers: where they run, and what."""
    facts = []
    names: dict[int, list[str]] = {}
    for task in overview.plan.tasks:
        names.setdefault(task.worker, []).append(task.name)
    for worker in overview.plan.workers:
        node, process = overview.processes.get(worker, (None, None))
        stats = overview.snapshot.workers.get(worker)
        facts.append(
            {
                "worker": worker,
                "life": stats.incarnation if stats else None,
                "node": node,
                "process": process,
                "tasks": names[worker],
                "links": {str(p): for_s for p, for_s in stats.links.items()} if stats else {},
                "crash_reports": stats.crash_reports if stats else None,
            }
        )
    return facts


def component_numbers(
    snapshot: Snapshot, id: str, parallelism: int, up_s: float, names: Collection[str] = NAMES
) -> dict[str, Any]:
    """The numbers of a component over all its tasks; `up_s`: since the topology was submitted;
    `names`: of the windows of time."""
    whole = snapshot.activity(id, up_s)
    complete = whole.latencies.get(LatencyKind.COMPLETE, Latencies())
    windows = {name: snapshot.windows.get(name, {}).get(id) for name in WINDOWS_S} | {ALL: whole}
    watermark = snapshot.watermark(id)
    return {
        **_counts(whole.counts),
        **_percentiles(complete),
        "latencies": _latencies(whole.latencies),
        "watermark": None if watermark is None else _finite(watermark[0]),
        "watermark_lag": None if watermark is None else watermark[1],
        "event_time_per_s": None if watermark is None else snapshot.per_s,
        "watermark_holds": list(snapshot.watermark_holds(id)),
        "event_time_notes": list(snapshot.event_time_notes(id)),
        "state_entries": snapshot.state_entries(id),
        "awaits": sorted({spout for task in snapshot.tasks_of(id) for spout in task.awaits}),
        "figures": _figures(snapshot.figures(id)),
        "windows": {
            name: _activity(activity, parallelism)
            for name, activity in windows.items()
            if activity is not None and name in names
        },
    }


def _activity(activity: Activity, parallelism: int) -> dict[str, Any]:
    return {
        "for_s": activity.for_s,
        "capacity": activity.capacity(parallelism),
        "blocked": activity.blocked(parallelism),
        **_counts(activity.counts),
        "latencies": _latencies(activity.latencies),
    }


def _counts(counts: Counts) -> dict[str, Any]:
    fields = counts.to_fields()
    emitted, transferred = fields.pop("emitted_to"), fields.pop("transferred_to")
    sent, executed = fields.pop("bytes_to"), counts.executed_from
    del fields["places"], fields["executed_from"]
    fields["causes"] = dict(counts.causes)
    fields["streams"] = {
        stream: {
            "emitted": emitted.get(stream, 0),
            "transferred": transferred.get(stream, 0),
            "bytes": sent.get(stream, 0),
        }
        for stream in {**emitted, **transferred}
    }
    fields["inputs"] = [{**key._asdict(), "executed": count} for key, count in executed.items()]
    fields["failures"] = [
        {
            "cause": place.cause,
            "component": place.component or None,
            "task": None if place.task < 0 else place.task,
            "worker": None if place.worker < 0 else place.worker,
            "count": count,
        }
        for place, count in sorted(counts.places.items(), key=lambda pair: -pair[1])
    ]
    return fields


def _latencies(latencies: Mapping[LatencyKind, Latencies]) -> dict[str, Any]:
    return {
        kind.value: {
            "count": histogram.total,
            "mean_s": histogram.sum_s / histogram.total,
            **_percentiles(histogram),
        }
        for kind, histogram in latencies.items()
        if histogram.total
    }


def _percentiles(latencies: Latencies) -> dict[str, float | None]:
    fields = {f"p{percent}_s": latencies.percentile(percent) for percent in _PERCENTS}
    return {**fields, "max_s": latencies.percentile(100)}


def task_numbers(task: TaskStats) -> dict[str, Any]:
    """The numbers of a task in its current process."""
    event_time = task.event_time
    return {
        **_counts(task.counts),
        "latencies": _latencies(task.latencies),
        "queued": task.queued,
        "queue_s": task.queue_s,
        "done": task.done,
        "watermark": None if event_time is None else _finite(event_time.watermark),
        "standing": task.health.standing.value,
        "errors": task.health.errors,
        "last_error": task.health.last[-1].line if task.health.last else None,
        "state_entries": task.entries,
        "figures": _figures(task.figures),
    }


def _waits(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    for task in snapshot.waiting():
        if (wait := task.health.wait) is not None:
            yield {
                "component": task.component,
                "task": wait.error.index,
                "worker": wait.error.worker,
                "kind": wait.kind,
                "for_s": wait.for_s,
                "tries": wait.tries,
                "error": task_error_text(wait.error),
                "reached": wait.reached,
            }


def _figures(figures: Mapping[str, float]) -> dict[str, float | None]:
    return {name: _finite(number) for name, number in figures.items()}


def _finite(number: float) -> float | None:
    return number if isfinite(number) else None
