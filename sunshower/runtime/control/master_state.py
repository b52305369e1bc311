"""The durable state of a master, from which the next master continues."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

import msgpack

from sunshower import versions
from sunshower.runtime.events.injected_faults import InjectedFaults
from sunshower.runtime.events.metrics import Counts, Latencies, WorkerStats
from sunshower.runtime.tasks.user_code import TaskError

T = TypeVar("T")
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
    unknown: dict[str, Any] = field(default_factory=dict)  # optional fields of another release

    def retire(self, last: WorkerStats) -> None:
        """Add the last statistics of a worker's life that is over."""
        self.untracked = self.untracked or last.untracked
        for task in last.tasks:
            name = task.component
            self.retired[name] = self.retired.get(name, Counts()) + task.counts.closed()
            if task.latencies is not None:
                self.latencies[name] = self.latencies.get(name, Latencies()) + task.latencies

    def to_bytes(self) -> bytes:
        """The state as MessagePack."""
        values = {  # asdict() of all of it takes ten times as long
            **self.unknown,
            **vars(self),
            "retired": {component: vars(counts) for component, counts in self.retired.items()},
            "latencies": {spout: one.to_fields() for spout, one in self.latencies.items()},
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
        retired = {name: _made(Counts, one) for name, one in found.get("retired", {}).items()}
        latencies, quarantined = found.get("latencies", {}), found.get("quarantined", {}).items()
        injected = found.get("injected")
        whole = {
            "retired": retired,
            "latencies": {name: Latencies(*one) for name, one in latencies.items()},
            "quarantined": {task: _made(TaskError, why) for task, why in quarantined},
            "injected": InjectedFaults.from_fields(injected) if injected else InjectedFaults(),
            "proven": set(found.get("proven", ())),
        }
        return MasterState(**{**found, **whole, "unknown": unknown})


def _made(kind: type[T], values: dict[str, Any]) -> T:
    """A value of a dataclass, without fields of another release."""
    known = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in values.items() if name in known})
