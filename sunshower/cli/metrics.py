"""`sunshower metrics`: an HTTP server with the statistics of all topologies of a cluster."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import islice
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from sunshower.cli.cluster_options import ANSWER_WITHIN_S, Address, ask_all, connect
from sunshower.cli.formatting import echo
from sunshower.errors import ConfigError, SunshowerError
from sunshower.failures import Cause
from sunshower.runtime.control.lifecycle import State
from sunshower.runtime.control.overview import Overview
from sunshower.runtime.events.health import WaitKind
from sunshower.runtime.events.metrics import (
    MEASURES,
    Counts,
    Latencies,
    LatencyKind,
    TaskStats,
)

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from sunshower.actors.cluster import RayCluster

PREFIX = "sunshower_"

Host = Annotated[
    str,
    typer.Option(
        metavar="HOST",
        help="The address to listen on. There is no password: everyone who connects can read.",
    ),
]
Port = Annotated[
    int,
    typer.Option(metavar="N", min=0, max=65535, help="The port to listen on; 0: any free port."),
]


# ---- families ------------------------------------------------------------------------------------
# The metrics that Prometheus gets: a table of names, types, labels and sources.
#
# Every label is a topology, a component or a value of an enum, so the number of time series
# follows from the declarations, not from the data.

_BOUNDS_S = (1e-3, 100.0)  # of the buckets that are exported: from 1.28 ms to 83.9 s
_FINE_BOUNDS_S = (3e-5, 50.0)  # of bolts, every second one: from 40 µs to 41.9 s
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
        if (found := self.overview) is None:
            return frozenset()
        missing = set(found.plan.workers) - found.snapshot.workers.keys()
        return frozenset(task.component for task in found.plan.tasks if task.worker in missing)

    @cached_property
    def tasks(self) -> Mapping[str, list[TaskStats]]:
        """The tasks by component."""
        by_component: dict[str, list[TaskStats]] = {}
        for task in self.overview.snapshot.tasks() if self.overview else ():
            by_component.setdefault(task.component, []).append(task)
        return by_component


class Family(NamedTuple):
    """One metric; its samples have the labels `topology` and `labels`."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    read: Callable[[Observed], Values]  # the values of `labels`, and the number
    is_fine: bool = False  # see `buckets`


def _of_topology(read: Callable[[Overview], float]) -> Callable[[Observed], Values]:
    def values(observed: Observed) -> Values:
        if observed.overview is not None:
            yield (), read(observed.overview)

    return values


def _components(
    observed: Observed, is_spout: bool | None, *, complete: bool = True
) -> Iterator[tuple[str, Overview]]:
    """The spouts, the bolts, or (None) both; `complete`: those with statistics of every task."""
    if (found := observed.overview) is None:
        return
    without = observed.incomplete if complete else frozenset()
    for component in found.plan.graph.components.values():
        if is_spout in (None, component.level.is_spout) and component.id not in without:
            yield component.id, found


def _measured(field: str) -> Family:
    """The metric of a number of `Counts`."""
    measure = MEASURES[field]

    def values(observed: Observed) -> Values:
        for name, overview in _components(observed, measure.is_spout):
            yield (name,), getattr(overview.snapshot.component(name), field)

    kind = Kind.COUNTER if measure.name.endswith("_total") else Kind.GAUGE
    return Family(measure.name, kind, ("component",), measure.help, values)


def _of_tasks(
    read: Callable[[Sequence[TaskStats]], float | None], is_spout: bool | None
) -> Callable[[Observed], Values]:
    def values(observed: Observed) -> Values:
        for name, _ in _components(observed, is_spout):
            if (value := read(observed.tasks.get(name, ()))) is not None:
                yield (name,), value

    return values


def _states(observed: Observed) -> Values:
    if observed.overview is not None:
        for state in State:
            yield (state.value,), float(observed.overview.snapshot.state == state)


def _causes(observed: Observed) -> Values:
    for name, found in _components(observed, True):
        causes = found.snapshot.component(name).causes
        for cause in Cause:
            yield (name, cause.value), causes.get(cause.value, 0)


def _places(observed: Observed) -> Values:
    """Failed trees by the component in which they failed, over all spouts."""
    if (found := observed.overview) is None:
        return
    spouts = [name for name, _ in _components(observed, True)]
    if len(spouts) < len(found.plan.graph.spouts):  # the sums would go back
        return
    sums: Counter[tuple[str, str]] = Counter()
    for name in spouts:
        for place, count in found.snapshot.component(name).places.items():
            sums[place.component, place.cause] += count
    for name in ("", *found.plan.graph.components):  # without a place: a timeout, for example
        for cause in Cause:
            yield (name, cause.value), sums[name, cause.value]


def _by_stream(read: Callable[[Counts], Mapping[str, int]]) -> Callable[[Observed], Values]:
    def values(observed: Observed) -> Values:
        for name, found in _components(observed, None):
            for stream, count in read(found.snapshot.component(name)).items():
                yield (name, stream), count

    return values


def _inputs(observed: Observed) -> Values:
    for name, found in _components(observed, False):
        for source, count in found.snapshot.component(name).executed_from.items():
            yield (name, source.component, source.stream), count


def _latencies(kind: LatencyKind) -> Callable[[Observed], Values]:
    def values(observed: Observed) -> Values:
        for name, found in _components(observed, kind is LatencyKind.COMPLETE):
            yield (name,), found.snapshot.latencies(name, kind)

    return values


def _watermarks(index: int) -> Callable[[Observed], Values]:
    def values(observed: Observed) -> Values:
        for name, found in _components(observed, None):
            value = (found.snapshot.watermark(name) or (None, None))[index]
            if value is not None and isfinite(value):
                yield (name,), value

    return values


def _waits(read: Callable[[Iterable[float]], float]) -> Callable[[Observed], Values]:
    """`read` gets for how many seconds each task of a component waits."""

    def values(observed: Observed) -> Values:
        for name, _ in _components(observed, None, complete=False):
            waits = [task.health.wait for task in observed.tasks.get(name, ())]
            for kind in WaitKind:
                found = (wait.for_s for wait in waits if wait is not None and wait.kind is kind)
                yield (name, kind.value), read(found)

    return values


def _stuck(read: Callable[[Iterable[float]], float]) -> Callable[[Observed], Values]:
    def values(observed: Observed) -> Values:
        for name, found in _components(observed, None, complete=False):
            calls = found.snapshot.stuck.values()
            yield (name,), read(call.for_s for call in calls if call.component == name)

    return values


def _quarantined(observed: Observed) -> Values:
    for name, found in _components(observed, None, complete=False):
        errors = found.snapshot.degraded.values()
        yield (name,), sum(error.component == name for error in errors)


def _number(durations: Iterable[float]) -> float:
    return sum(1 for _ in durations)


def _longest(durations: Iterable[float]) -> float:
    return max(durations, default=0.0)


def _lag(tasks: Sequence[TaskStats]) -> float | None:
    lags = [task.figures["lag"] for task in tasks if "lag" in task.figures]
    total = sum(lags)
    return total if lags and isfinite(total) else None


def _entries(tasks: Sequence[TaskStats]) -> float | None:
    known = [task.entries for task in tasks if task.entries is not None]
    return float(sum(known)) if known else None


def _up(observed: Observed) -> Values:
    yield (), float(observed.overview is not None)


def _parallelism(observed: Observed) -> Values:
    for name, found in _components(observed, None, complete=False):
        yield (name,), found.plan.graph.components[name].parallelism


_ONE = ("component",)
_KIND = ("component", "kind")
_STREAM = ("component", "stream")
_COUNTER, _GAUGE = Kind.COUNTER, Kind.GAUGE
FAMILIES = (
    Family("up", _GAUGE, (), "1 if the topology's master answers, else 0", _up),
    Family("topology_state", _GAUGE, ("state",), "1 for the topology's state, else 0", _states),
    Family("topology_start_time_seconds", _GAUGE, (), "when it was submitted, in Unix time",
           _of_topology(lambda found: found.since_s)),
    Family("workers", _GAUGE, (), "worker processes of the plan",
           _of_topology(lambda found: len(found.plan.workers))),
    Family("silent_workers", _GAUGE, (), "workers whose heartbeats are missing",
           _of_topology(lambda found: len(found.snapshot.silent))),
    Family("worker_restarts_total", _COUNTER, (), "restarts of worker processes",
           _of_topology(lambda found: found.snapshot.restarts)),
    Family("tasks", _GAUGE, _ONE, "tasks of the component", _parallelism),
    _measured("emitted"),
    _measured("transferred"),
    Family("stream_tuples_emitted_total", _COUNTER, _STREAM, "calls of emit by output stream",
           _by_stream(lambda counts: counts.emitted_to)),
    Family("stream_tuples_transferred_total", _COUNTER, _STREAM, "tuples sent by output stream, "
           "one for each target task", _by_stream(lambda counts: counts.transferred_to)),
    Family("stream_sent_bytes_total", _COUNTER, _STREAM, "bytes of tuples and their ids sent to "
           "other workers, by output stream",
           _by_stream(lambda counts: counts.bytes_to)),
    _measured("executed"),
    Family("stream_tuples_executed_total", _COUNTER, ("component", "source", "stream"), "bolts: "
           "tuples received, by input stream of the component `source`", _inputs),
    _measured("acked"),
    _measured("failed"),
    Family("trees_failed_total", _COUNTER, ("component", "cause"), "spouts: failed trees by cause",
           _causes),
    Family("trees_failed_in_total", _COUNTER, ("component", "cause"), "failed trees by the "
           "component in which they failed; the label is empty if the component is unknown (a "
           "timeout)", _places),
    _measured("replayed"),
    _measured("expired"),
    _measured("dead"),
    _measured("late"),
    _measured("late_by"),
    _measured("ahead"),
    _measured("busy_s"),
    _measured("blocked_s"),
    Family("complete_latency_seconds", Kind.HISTOGRAM, _ONE, "spouts: from emit to complete tree",
           _latencies(LatencyKind.COMPLETE)),
    Family("execute_latency_seconds", Kind.HISTOGRAM, _ONE, "bolts: the time of a tuple in the "
           "bolt's code; tuples executed together are recorded with their mean",
           _latencies(LatencyKind.EXECUTE), is_fine=True),
    Family("queue_latency_seconds", Kind.HISTOGRAM, _ONE, "bolts: from a tuple's arrival in the "
           "inbox to its execution", _latencies(LatencyKind.QUEUE), is_fine=True),
    _measured("pending"),
    Family("queued_tuples", _GAUGE, _ONE, "bolts: tuples in the inboxes",
           _of_tasks(lambda tasks: sum(task.queued for task in tasks), False)),
    Family("queue_wait_seconds", _GAUGE, _ONE, "bolts: the waiting time of a tuple in the "
           "slowest inbox",
           _of_tasks(lambda tasks: max((task.queue_s for task in tasks), default=0.0), False)),
    Family("state_entries", _GAUGE, _ONE, "bolts: entries of states in memory and in SQLite: keys, "
           "timers, parts of windows", _of_tasks(_entries, False)),
    Family("lag_records", _GAUGE, _ONE, "components that report a lag, such as Kafka spouts: "
           "records of the source that are not settled yet", _of_tasks(_lag, None)),
    Family("watermark", _GAUGE, _ONE, "the watermark of the slowest task, in the unit of the "
           "event-time field; for datetimes, Unix time", _watermarks(0)),
    Family("watermark_lag", _GAUGE, _ONE, "the distance of the watermark from the newest event "
           "time that a spout has emitted, in the same unit", _watermarks(1)),
    Family("waiting_tasks", _GAUGE, _KIND, "tasks that wait for a dependency (unavailable), that "
           "have succeeded before and now fail every input (doubt), or whose table in memory is "
           "filled again (filling)", _waits(_number)),
    Family("wait_seconds", _GAUGE, _KIND, "the longest of these waits, at its last try",
           _waits(_longest)),
    Family("stuck_tasks", _GAUGE, _ONE, "tasks in a call of user code that has not returned for "
           "ten seconds", _stuck(_number)),
    Family("stuck_seconds", _GAUGE, _ONE, "the longest of these calls", _stuck(_longest)),
    Family("quarantined_tasks", _GAUGE, _ONE, "tasks that kept raising or crashing", _quarantined),
)  # fmt: skip


def buckets(latencies: Latencies, *, is_fine: bool = False) -> list[tuple[str, float]]:
    """The cumulative buckets of a histogram: upper bounds in seconds, as text, and counts.

    `is_fine`: from shorter durations on, in steps of four instead of two.
    """
    least_s, most_s = _FINE_BOUNDS_S if is_fine else _BOUNDS_S
    octaves = islice(latencies.octaves(), 1, None, 2) if is_fine else latencies.octaves()
    bounds = [(f"{s:.6g}", float(n)) for s, n in octaves if least_s < s < most_s]
    return [*bounds, ("+Inf", float(latencies.total))]


# ---- command -------------------------------------------------------------------------------------


def metrics(host: Host = "127.0.0.1", port: Port = 9470, address: Address = "auto") -> None:
    """Serve the statistics of all topologies of a cluster to Prometheus, until Ctrl-C.

    Each request to /metrics queries every topology once. docs/METRICS.md lists the metrics, and
    shows how to install the alert rules and the Grafana dashboard.
    """
    from sunshower.experiments.runner.interrupts import Interrupts
    from sunshower.installed import check_packages

    check_packages("metrics", "which serves the metrics", "prometheus_client")
    with (
        Interrupts() as interrupts,
        connect(address, as_job=False) as cluster,
        served(lambda: observe(cluster), host, port) as url,
    ):
        interrupts.defer()
        echo(f"Metrics are at {url}. Ctrl-C ends this server.")
        interrupts.wait_for_request()


def observe(cluster: RayCluster) -> list[Observed]:
    """Ask all topologies of a cluster at the same time."""
    answers = ask_all(cluster.runs(), lambda name: cluster.find(name).overview(ANSWER_WITHIN_S))
    return [
        Observed(name, None if isinstance(found, SunshowerError) else found)
        for name, found in answers
    ]


class TopologyCollector:
    """What prometheus_client's registry asks for the metrics at each request."""

    def __init__(self, look: Callable[[], list[Observed]]) -> None:
        self._look = look

    def describe(self) -> Iterator[Metric]:
        """The metrics without samples, for a request that names some."""
        return self._collect([])

    def collect(self) -> Iterator[Metric]:
        """The metrics now."""
        return self._collect(self._look())

    def _collect(self, topologies: list[Observed]) -> Iterator[Metric]:

        for family in FAMILIES:
            yield _samples(family, topologies)


def _samples(family: Family, topologies: list[Observed]) -> Metric:
    from prometheus_client import core

    kinds: dict[Kind, Any] = {
        Kind.COUNTER: core.CounterMetricFamily,
        Kind.GAUGE: core.GaugeMetricFamily,
        Kind.HISTOGRAM: core.HistogramMetricFamily,
    }
    labels = ["topology", *family.labels]
    metric: Metric = kinds[family.kind](PREFIX + family.name, family.help, labels=labels)
    for observed in topologies:
        for found, value in family.read(observed):
            where = [observed.topology, *found]
            if isinstance(value, float | int):
                metric.add_metric(where, value)  # type: ignore[attr-defined]
            else:
                found_buckets = buckets(value, is_fine=family.is_fine)
                metric.add_metric(where, found_buckets, value.sum_s)  # type: ignore[attr-defined]
    return metric


@contextmanager
def served(look: Callable[[], list[Observed]], host: str, port: int) -> Iterator[str]:
    """Serve what `look` finds at each request; yields the address of the metrics. Raises
    ConfigError if the address cannot be used."""
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(TopologyCollector(look))
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise ConfigError(
            f"cannot listen at {host}, port {port}: {error}. Choose another --host or --port; "
            "--port 0 takes a free one"
        ) from error
    try:
        here = f"[{host}]" if server.address_family == socket.AF_INET6 else host
        yield f"http://{here}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
