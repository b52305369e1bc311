"""Exports the numbers of a topology through Ray's own metrics, which Ray's dashboard collects."""

from __future__ import annotations

from ray.util.metrics import Counter, Gauge

from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.plan import Plan

EXPORT_S = 5.0  # how often: as often as Ray collects, and no call for each tuple
_WINDOW = "1m"  # of the capacity
_TAGS = ("topology", "component")
_COUNTERS = {
    "emitted": "calls of emit; of spouts: replays, too",
    "executed": "bolts: tuples received",
    "acked": "spouts: complete trees, and dead letters; bolts: acked inputs",
    "failed": "spouts: failed trees; bolts: failed inputs",
}


class RayMetrics:
    """The metrics of one topology, in the process of its master. A component has six at most, so
    the number of time series follows from the declarations."""

    def __init__(self, topology: str) -> None:
        self._topology = topology
        self._counters = {
            name: Counter(f"sunshower_tuples_{name}", about, _TAGS)
            for name, about in _COUNTERS.items()
        }
        self._pending = Gauge("sunshower_pending_tuples", "spouts: trees that are open now", _TAGS)
        self._capacity = Gauge(
            "sunshower_capacity", "the busy share of the tasks in the last minute, 0 to 1", _TAGS
        )
        self._exported: dict[tuple[str, str], int] = {}
        self._components: set[str] = set()  # of the last export

    def export(self, plan: Plan, snapshot: Snapshot) -> None:
        """Set all metrics to those of a snapshot with windows. Counters do not go back: one that is
        lower, because a worker has not reported yet, stays. The gauges of components that are no
        longer there become 0."""
        before, self._components = self._components, {*plan.graph.components}
        for id in before - self._components:
            for gauge in (self._pending, self._capacity):
                gauge.set(0, {"topology": self._topology, "component": id})
        for component in plan.graph.components.values():
            id, counts = component.id, snapshot.component(component.id)
            tags = {"topology": self._topology, "component": id}
            for name, counter in self._counters.items():
                if (grown := getattr(counts, name) - self._exported.get((id, name), 0)) > 0:
                    counter.inc(grown, tags)
                    self._exported[id, name] = getattr(counts, name)
            if component.level.is_spout:
                self._pending.set(counts.pending, tags)
            if (activity := snapshot.windows.get(_WINDOW, {}).get(id)) is not None:
                self._capacity.set(activity.capacity(component.parallelism), tags)
