"""The measures of a running topology: names, types, labels and help, and how each is read.

Prometheus and Ray's metrics are made from this table, and docs/METRICS.md is compared with it. What
a component has counted is in `Counts`, whose fields are also those of `status --json`. Every label
is a topology, a component or a value of an enum, so the number of time series follows from the
declarations, not from the data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import islice
from math import isfinite
from typing import NamedTuple

from sunshower.failures import Cause
from sunshower.runtime.control.lifecycle import State
from sunshower.runtime.control.overview import Overview
from sunshower.runtime.events.health import WaitKind
from sunshower.runtime.events.metrics import Counts, Latencies, LatencyKind, Snapshot
from sunshower.runtime.events.progress import Backlog, LimitKind, TopologyProgress

_BOUNDS_S = (1e-3, 100.0)  # of the buckets that are exported: from 1.28 ms to 83.9 s
_FINE_BOUNDS_S = (3e-5, 50.0)  # of bolts, every second one: from 40 µs to 41.9 s
_ONE = ("component",)
Values = Iterator[tuple[tuple[str, ...], float | Latencies]]


class Kind(StrEnum):
    """The type of a metric, as Prometheus names it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Observed:
    """A topology at one moment; without an overview its master does not answer."""

    topology: str
    overview: Overview | None

    @cached_property
    def incomplete(self) -> frozenset[str]:
        """Components with a task that no statistics are known of, because its worker has just
        started, or the master has. Their counters would go back."""
        if (overview := self.overview) is None:
            return frozenset()
        missing = set(overview.plan.workers) - overview.snapshot.workers.keys()
        return frozenset(task.component for task in overview.plan.tasks if task.worker in missing)


class Measure(NamedTuple):
    """One metric; its samples have the labels `topology` and `labels`."""

    name: str  # without a prefix; that of a counter ends with _total
    labels: tuple[str, ...]
    help: str
    read: Callable[[Observed], Values]  # the values of `labels`, and the number
    is_fine: bool = False  # see `buckets`
    field: str = ""  # of `Counts`, if it is one of these
    in_ray: bool = False  # whether Ray's own metrics have it

    @property
    def kind(self) -> Kind:
        """Its type, which follows from its name."""
        if self.name.endswith("_latency_seconds"):
            return Kind.HISTOGRAM
        return Kind.COUNTER if self.name.endswith("_total") else Kind.GAUGE


def _of_topology(read: Callable[[Overview], float]) -> Callable[[Observed], Values]:
    def values(observed: Observed) -> Values:
        if observed.overview is not None:
            yield (), read(observed.overview)

    return values


def _components(
    observed: Observed, is_spout: bool | None, *, complete: bool = True
) -> Iterator[tuple[str, Overview]]:
    """The spouts, the bolts, or (None) both; `complete`: those with statistics of every task."""
    if (overview := observed.overview) is None:
        return
    without = observed.incomplete if complete else frozenset()
    for component in overview.plan.graph.components.values():
        if is_spout in (None, component.level.is_spout) and component.id not in without:
            yield component.id, overview


def _of_components(
    read: Callable[[Overview, str], float | Latencies | None],
    is_spout: bool | None = None,
    *,
    complete: bool = True,
) -> Callable[[Observed], Values]:
    """`read` gets the id of a component; None: this one has no such number."""

    def values(observed: Observed) -> Values:
        for id, overview in _components(observed, is_spout, complete=complete):
            if (value := read(overview, id)) is not None:
                yield (id,), value

    return values


def _counted(
    field: str, name: str, about: str, is_spout: bool | None = None, *, in_ray: bool = False
) -> Measure:
    """A number of `Counts`; `is_spout`: whether spouts have it, or bolts; None: both."""

    def count(overview: Overview, id: str) -> float:
        return float(getattr(overview.snapshot.component(id), field))

    return Measure(name, _ONE, about, _of_components(count, is_spout), field=field, in_ray=in_ray)


def _by_parts(
    read: Callable[[Snapshot, str], Iterable[tuple[tuple[str, ...], float]]],
    is_spout: bool | None = None,
    *,
    complete: bool = True,
) -> Callable[[Observed], Values]:
    """`read` yields the further labels of a component, and the number of each."""

    def values(observed: Observed) -> Values:
        for id, overview in _components(observed, is_spout, complete=complete):
            for labels, value in read(overview.snapshot, id):
                yield (id, *labels), value

    return values


def _states(observed: Observed) -> Values:
    if observed.overview is not None:
        for state in State:
            yield (state.value,), float(observed.overview.snapshot.state == state)


def _causes(snapshot: Snapshot, id: str) -> Iterator[tuple[tuple[str, ...], float]]:
    causes = snapshot.component(id).causes
    yield from (((cause.value,), causes.get(cause.value, 0)) for cause in Cause)


def _places(observed: Observed) -> Values:
    """Failed trees by the component in which they failed, over all spouts."""
    if (overview := observed.overview) is None:
        return
    spouts = [id for id, _ in _components(observed, True)]
    if len(spouts) < len(overview.plan.graph.spouts):  # the sums would go back
        return
    sums: Counter[tuple[str, str]] = Counter()
    for id in spouts:
        for place, count in overview.snapshot.component(id).places.items():
            sums[place.component, place.cause] += count
    for id in ("", *overview.plan.graph.components):  # without a place: a timeout, for example
        for cause in Cause:
            yield (id, cause.value), sums[id, cause.value]


def _by_stream(read: Callable[[Counts], Mapping[str, int]]) -> Callable[[Observed], Values]:
    return _by_parts(
        lambda snapshot, id: (
            ((stream,), count) for stream, count in read(snapshot.component(id)).items()
        )
    )


def _inputs(snapshot: Snapshot, id: str) -> Iterator[tuple[tuple[str, ...], float]]:
    yield from snapshot.component(id).executed_from.items()


def _latencies(kind: LatencyKind) -> Callable[[Observed], Values]:
    return _of_components(
        lambda overview, id: overview.snapshot.latencies(id, kind), kind is LatencyKind.COMPLETE
    )


def _watermarks(index: int) -> Callable[[Observed], Values]:
    def read(overview: Overview, id: str) -> float | None:
        value = (overview.snapshot.watermark(id) or (None, None))[index]
        return value if value is not None and isfinite(value) else None

    return _of_components(read)


def _waits(read: Callable[[Iterable[float]], float]) -> Callable[[Observed], Values]:
    """`read` gets for how many seconds each task of a component waits."""

    def by_kind(snapshot: Snapshot, id: str) -> Iterator[tuple[tuple[str, ...], float]]:
        waits = [task.health.wait for task in snapshot.tasks_of(id)]
        for kind in WaitKind:
            of_kind = (wait.for_s for wait in waits if wait is not None and wait.kind is kind)
            yield (kind.value,), read(of_kind)

    return _by_parts(by_kind, complete=False)


def _stuck(read: Callable[[Iterable[float]], float]) -> Callable[[Observed], Values]:
    def longest(overview: Overview, id: str) -> float:
        calls = overview.snapshot.stuck.values()
        return read(call.for_s for call in calls if call.component == id)

    return _of_components(longest, complete=False)


def _quarantined(overview: Overview, id: str) -> float:
    return sum(error.component == id for error in overview.snapshot.degraded.values())


def _queued(overview: Overview, id: str) -> float:
    return sum(task.queued for task in overview.snapshot.tasks_of(id))


def _queue_s(overview: Overview, id: str) -> float:
    return max((task.queue_s for task in overview.snapshot.tasks_of(id)), default=0.0)


def _lag(overview: Overview, id: str) -> float | None:
    tasks = overview.snapshot.tasks_of(id)
    lags = [task.figures["lag"] for task in tasks if "lag" in task.figures]
    total = sum(lags)
    return total if lags and isfinite(total) else None


def _sources(read: Callable[[Backlog], float]) -> Callable[[Observed], Values]:
    def values(observed: Observed) -> Values:
        if (progress := _progress(observed)) is not None:
            yield from (((source.component,), read(source)) for source in progress.sources)

    return values


def _progress(observed: Observed) -> TopologyProgress | None:
    return None if observed.overview is None else observed.overview.snapshot.progress


def _busiest(overview: Overview, id: str) -> float | None:
    progress = overview.snapshot.progress
    loads = None if progress is None else progress.busy.get(id)
    return None if loads is None else loads.top


def _oldest(observed: Observed) -> Values:
    if (progress := _progress(observed)) is not None:
        yield from (((id,), age_s) for id, age_s in progress.oldest_s.items())


def _event_age(observed: Observed) -> Values:
    if (progress := _progress(observed)) is not None and progress.event_age_s is not None:
        yield (), progress.event_age_s


def _limits(observed: Observed) -> Values:
    if (progress := _progress(observed)) is not None:
        for kind in LimitKind:
            yield (kind.value,), float(progress.limit.kind is kind)


def _limiting(overview: Overview) -> str:
    progress = overview.snapshot.progress
    return "" if progress is None else progress.limit.component


def _number(durations: Iterable[float]) -> float:
    return sum(1 for _ in durations)


def _longest(durations: Iterable[float]) -> float:
    return max(durations, default=0.0)


def _up(observed: Observed) -> Values:
    yield (), float(observed.overview is not None)


_KIND = ("component", "kind")
_STREAM = ("component", "stream")
MEASURES = (
    Measure("up", (), "1 if the topology's master answers, else 0", _up),
    Measure("topology_state", ("state",), "1 for the topology's state, else 0", _states),
    Measure("topology_start_time_seconds", (), "when it was submitted, in Unix time",
            _of_topology(lambda overview: overview.since_s)),
    Measure("workers", (), "worker processes of the plan",
            _of_topology(lambda overview: len(overview.plan.workers))),
    Measure("silent_workers", (), "workers whose heartbeats are missing",
            _of_topology(lambda overview: len(overview.snapshot.silent))),
    Measure("worker_restarts_total", (), "restarts of worker processes",
            _of_topology(lambda overview: overview.snapshot.restarts)),
    Measure("tasks", _ONE, "tasks of the component", _of_components(
        lambda overview, id: overview.plan.graph.components[id].parallelism, complete=False)),
    _counted("emitted", "tuples_emitted_total", "calls of emit; of spouts: replays, too",
             in_ray=True),
    _counted("transferred", "tuples_transferred_total", "tuples sent, one for each target task"),
    Measure("stream_tuples_emitted_total", _STREAM, "calls of emit by output stream",
            _by_stream(lambda counts: counts.emitted_to)),
    Measure("stream_tuples_transferred_total", _STREAM, "tuples sent by output stream, one for "
            "each target task", _by_stream(lambda counts: counts.transferred_to)),
    Measure("stream_sent_bytes_total", _STREAM, "bytes of tuples and their ids sent to other "
            "workers, by output stream", _by_stream(lambda counts: counts.bytes_to)),
    _counted("executed", "tuples_executed_total", "bolts: tuples received", is_spout=False,
             in_ray=True),
    Measure("stream_tuples_executed_total", ("component", "source", "stream"),
            "bolts: tuples received, by input stream of the component `source`",
            _by_parts(_inputs, False)),
    _counted("acked", "tuples_acked_total", "spouts: complete trees, and dead letters; bolts: "
             "acked inputs", in_ray=True),
    _counted("failed", "tuples_failed_total", "spouts: failed trees; bolts: failed inputs",
             in_ray=True),
    Measure("trees_failed_total", ("component", "cause"), "spouts: failed trees by cause",
            _by_parts(_causes, True)),
    Measure("trees_failed_in_total", ("component", "cause"), "failed trees by the component in "
            "which they failed; the label is empty if the component is unknown (a timeout)",
            _places),
    _counted("replayed", "tuples_replayed_total", "spouts: tuples emitted again", is_spout=True),
    _counted("expired", "tuples_expired_total", "bolts: inputs dropped unprocessed, because their "
             "trees had failed", is_spout=False),
    _counted("dead", "dead_letters_total", "spouts: tuples that became dead letters",
             is_spout=True),
    _counted("late", "tuples_late_total", "windows and joins: tuples that came after their window "
             "had ended", is_spout=False),
    _counted("late_by", "late_by", "windows and joins: how long after that the worst one came, in "
             "the unit of the event-time field", is_spout=False),
    _counted("ahead", "tuples_ahead_total", "spouts, and sources of batches: tuples whose event "
             "time was too far ahead of the clock to move the watermark"),
    _counted("busy_s", "busy_seconds_total", "time in which tasks were busy, summed: bolts in "
             "their code, spouts emitting"),
    _counted("blocked_s", "blocked_seconds_total", "time in which tasks had work but no credit, or "
             "(spouts) the maximum number of pending trees, summed"),
    Measure("complete_latency_seconds", _ONE, "spouts: from emit to complete tree",
            _latencies(LatencyKind.COMPLETE)),
    Measure("execute_latency_seconds", _ONE, "bolts: the time of a tuple in the bolt's code; "
            "tuples executed together are recorded with their mean",
            _latencies(LatencyKind.EXECUTE), is_fine=True),
    Measure("queue_latency_seconds", _ONE, "bolts: from a tuple's arrival in the inbox to its "
            "execution", _latencies(LatencyKind.QUEUE), is_fine=True),
    _counted("pending", "pending_tuples", "spouts: trees that are open now", is_spout=True,
             in_ray=True),
    Measure("queued_tuples", _ONE, "bolts: tuples in the inboxes",
            _of_components(_queued, False)),
    Measure("queue_wait_seconds", _ONE, "bolts: the waiting time of a tuple in the slowest inbox",
            _of_components(_queue_s, False)),
    Measure("state_entries", _ONE, "bolts: entries of states in memory and in SQLite: keys, "
            "timers, parts of windows", _of_components(
                lambda overview, id: overview.snapshot.state_entries(id), False)),
    Measure("lag_records", _ONE, "components that report a lag, such as Kafka spouts: records of "
            "the source that are not settled yet", _of_components(_lag)),
    Measure("lag_growth", _ONE, "by how many records a second the lag grows; negative: it falls",
            _sources(lambda source: source.growth)),
    Measure("falls_behind", _ONE, "1 if the lag grows by more than chance, else 0",
            _sources(lambda source: float(source.falls_behind))),
    Measure("oldest_pending_seconds", _ONE, "the age of the oldest open tree of a spout, or of the "
            "oldest open batch", _oldest),
    Measure("event_time_age_seconds", (), "how far the lowest watermark is behind the clock, if "
            "event times count from 1970", _event_age),
    Measure("busiest_task_capacity", _ONE, "the share of the last half minute in which the "
            "busiest task of the component was busy, 0 to 1", _of_components(_busiest)),
    Measure("limited", ("by",), "1 for what limits the topology, else 0", _limits),
    Measure("limiting", _ONE, "1 if the component limits the topology, else 0", _of_components(
        lambda overview, id: float(_limiting(overview) == id), complete=False)),
    Measure("watermark", _ONE, "the watermark of the slowest task, in the unit of the event-time "
            "field; for datetimes, Unix time", _watermarks(0)),
    Measure("watermark_lag", _ONE, "the distance of the watermark from the newest event time that "
            "a spout has emitted, in the same unit", _watermarks(1)),
    Measure("waiting_tasks", _KIND, "tasks that wait for a dependency (unavailable), that have "
            "succeeded before and now fail every input (doubt), or whose table in memory is filled "
            "again (filling)", _waits(_number)),
    Measure("wait_seconds", _KIND, "the longest of these waits, at its last try", _waits(_longest)),
    Measure("stuck_tasks", _ONE, "tasks in a call of user code that has not returned for ten "
            "seconds", _stuck(_number)),
    Measure("stuck_seconds", _ONE, "the longest of these calls", _stuck(_longest)),
    Measure("quarantined_tasks", _ONE, "tasks that kept raising or crashing",
            _of_components(_quarantined, complete=False)),
)  # fmt: skip
# Only Ray's metrics have it: Prometheus computes it for any time.
CAPACITY = (
    "capacity",
    "the share of the last minute in which the component's tasks were busy, 0 to 1",
)


def buckets(latencies: Latencies, *, is_fine: bool = False) -> list[tuple[str, float]]:
    """The cumulative buckets of a histogram: upper bounds in seconds, as text, and counts.

    `is_fine`: from shorter durations on, in steps of four instead of two.
    """
    least_s, most_s = _FINE_BOUNDS_S if is_fine else _BOUNDS_S
    octaves = islice(latencies.octaves(), 1, None, 2) if is_fine else latencies.octaves()
    bounds = [(f"{s:.6g}", float(n)) for s, n in octaves if least_s < s < most_s]
    return [*bounds, ("+Inf", float(latencies.total))]
