"""The durable state of a master, from which the next master continues."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

import msgpack

from sunshower.runtime.events.injected_faults import InjectedFaults
from sunshower.runtime.events.metrics import Counts
from sunshower.runtime.tasks.user_code import TaskError


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

    def to_bytes(self) -> bytes:
        """The state as MessagePack."""
        values = {  # asdict() of all of it takes ten times as long
            **vars(self),
            "retired": {component: vars(counts) for component, counts in self.retired.items()},
            "proven": sorted(self.proven),
            "quarantined": {task: asdict(why) for task, why in self.quarantined.items()},
            "injected": self.injected.to_fields(),
        }
        data: bytes = msgpack.packb(values)
        return data

    @staticmethod
    def from_bytes(data: bytes) -> MasterState:
        """The state that `to_bytes` has encoded."""
        fields = msgpack.unpackb(data, strict_map_key=False)
        retired = {component: Counts(**counts) for component, counts in fields["retired"].items()}
        quarantined = {task: TaskError(**why) for task, why in fields["quarantined"].items()}
        injected = InjectedFaults.from_fields(fields["injected"])
        whole = {"retired": retired, "quarantined": quarantined, "injected": injected}
        whole["proven"] = set(fields["proven"])
        return MasterState(**{**fields, **whole})
