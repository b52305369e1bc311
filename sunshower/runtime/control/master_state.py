"""The durable state of a master, from which the next master continues."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

import msgpack

from sunshower import versions
from sunshower.runtime.events.injected_faults import InjectedFaults
from sunshower.runtime.events.latencies import Latencies, LatencyKind
from sunshower.runtime.events.metrics import Counts, WorkerStats
from sunshower.runtime.events.time_windows import Totals, add_up
from sunshower.runtime.tasks.user_code import TaskError

T = TypeVar("T")
_LATENCIES = ("latencies", "execute", "queue")
_WAY_OUT = "let all nodes have one release, kill the topology and submit it again"


@dataclass
class MasterState:
    """Kept in a store, without what workers report again (their counters)."""

    lives: dict[int, int] = field(default_factory=dict)  # worker → its latest life
    retired: dict[str, Counts] = field(default_factory=dict)  # counters of former lives
    quarantined: dict[int, TaskError] = field(default_factory=dict)  # task → why
    positions: dict[int, int] = field(default_factory=dict)  # spout task → TaskStats.committed
    drawn: dict[int, int] = field(default_factory=dict)  # spout task → TaskStats.drawn
    suspects: dict[int, dict[int, int]] = field(default_factory=dict)  # spout task → message →
    # how often the task's own process died while executing a record of it
    proven: set[str] = field(default_factory=set)  # components that have succeeded once
    fenced: dict[int, int] = field(default_factory=dict)  # worker → its life, which was replaced
    isolated: dict[int, int] = field(default_factory=dict)  # by an experiment: worker → its life
    restarts: int = 0  # hellos of workers that had said hello before
    active: bool = True  # spouts emit
    draining: bool = False  # spouts emit no new records
    killing: bool = False  # draining before the kill
    killed: bool = False
    error: str | None = None  # why the topology failed
    untracked: str | None = None  # the first failure of an untracked record in former lives
    wait_s: float = 0.0  # how long a kill or rebalance waits for pending trees
    places: list[int] | None = None  # the worker of each task, once it differs from the plan
    next_places: list[int] | None = None  # likewise, during a rebalance
    packing: bool = False  # workers store the tasks that will move
    moves: int = 0  # rebalances carried out
    floor: int = 0  # lives up to this one are from before the last move
    injected: InjectedFaults = field(default_factory=InjectedFaults)  # of an experiment
    latencies: dict[str, Latencies] = field(default_factory=dict)  # of spouts in former lives
    execute: dict[str, Latencies] = field(default_factory=dict)  # of bolts in former lives; see
    queue: dict[str, Latencies] = field(default_factory=dict)  # LatencyKind
    unknown: dict[str, Any] = field(default_factory=dict)  # optional fields of another release

    def retire(self, last: WorkerStats) -> None:
        """Add the last statistics of a worker's life that is over."""
        self.untracked = self.untracked or last.untracked
        for task in last.tasks:
            name = task.component
            self.retired[name] = self.retired.get(name, Counts()) + task.counts.closed()
            for kind, latencies in task.latencies_by_kind.items():
                kept = self.latencies_by_kind[kind]
                kept[name] = kept.get(name, Latencies()) + latencies

    @property
    def latencies_by_kind(self) -> dict[LatencyKind, dict[str, Latencies]]:
        """The latencies of former lives, by kind and component."""
        return {
            LatencyKind.COMPLETE: self.latencies,
            LatencyKind.EXECUTE: self.execute,
            LatencyKind.QUEUE: self.queue,
        }

    def totals(self, workers: Iterable[WorkerStats]) -> dict[str, Totals]:
        """What each component has done since the topology was submitted; `workers`: those of
        now."""
        by_kind = self.latencies_by_kind
        retired = {
            name: Totals(counts, {k: own[name] for k, own in by_kind.items() if name in own})
            for name, counts in self.retired.items()
        }
        return add_up(retired, (task for worker in workers for task in worker.tasks))

    def to_bytes(self) -> bytes:
        """The state as MessagePack."""
        values = {  # asdict() of all of it takes ten times as long
            **self.unknown,
            **vars(self),
            "retired": {name: counts.to_fields() for name, counts in self.retired.items()},
            **{name: _fields_of(getattr(self, name)) for name in _LATENCIES},
            "proven": sorted(self.proven),
            "quarantined": {task: asdict(why) for task, why in self.quarantined.items()},
            "injected": self.injected.to_fields(),
        }
        del values["unknown"]
        return versions.stamp(
            versions.MASTER_STATE, msgpack.packb(values, unicode_errors="surrogatepass")
        )

    @staticmethod
    def from_bytes(data: bytes) -> MasterState:
        """The state that `to_bytes` has encoded. Raises VersionMismatch."""
        data = versions.unstamp("the state of the master", data, versions.MASTER_STATE, _WAY_OUT)
        found = msgpack.unpackb(data, strict_map_key=False, unicode_errors="surrogatepass")
        known = {one.name for one in fields(MasterState)}
        unknown = {name: found.pop(name) for name in found.keys() - known}
        retired = {name: Counts.from_fields(one) for name, one in found.get("retired", {}).items()}
        quarantined = found.get("quarantined", {}).items()
        injected = found.get("injected")
        whole = {
            "retired": retired,
            **{
                kind: {name: Latencies(*one) for name, one in found.get(kind, {}).items()}
                for kind in _LATENCIES
            },
            "quarantined": {task: _made(TaskError, why) for task, why in quarantined},
            "injected": InjectedFaults.from_fields(injected) if injected else InjectedFaults(),
            "proven": set(found.get("proven", ())),
        }
        return MasterState(**{**found, **whole, "unknown": unknown})


def _fields_of(latencies: dict[str, Latencies]) -> dict[str, Any]:
    return {component: one.to_fields() for component, one in latencies.items()}


def _made(kind: type[T], values: dict[str, Any]) -> T:
    """A value of a dataclass, without fields of another release."""
    known = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in values.items() if name in known})
