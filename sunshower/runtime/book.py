"""What a topology must not forget when its master dies: the next one goes on from here."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

import msgpack

from sunshower.runtime.havoc import Havoc
from sunshower.runtime.metrics import Counts
from sunshower.runtime.usercode import TaskError


@dataclass
class Book:
    """Kept in a store. What workers can tell again (their counters) is not in it."""

    lives: dict[int, int] = field(default_factory=dict)  # worker → its latest life
    retired: dict[str, Counts] = field(default_factory=dict)  # what dead incarnations had done
    quarantined: dict[int, TaskError] = field(default_factory=dict)  # task → why
    positions: dict[int, int] = field(default_factory=dict)  # spout task → TaskStats.committed
    drawn: dict[int, int] = field(default_factory=dict)  # spout task → TaskStats.drawn
    suspects: dict[int, dict[int, int]] = field(default_factory=dict)  # spout task → message →
    # how often the task's own process died while it was executing a record of it
    proven: set[str] = field(default_factory=set)  # components that have succeeded once
    restarts: int = 0  # hellos of workers that were there already
    active: bool = True  # spouts emit
    draining: bool = False  # spouts emit nothing fresh
    killing: bool = False  # and that is the end of it
    killed: bool = False
    error: str | None = None  # why the topology gave up
    untracked: str | None = None  # the first failure, in lives that are over, that nobody follows
    wait_s: float = 0.0  # how long a kill or a rebalance waits for what is pending
    places: list[int] | None = None  # the worker of each task, once that is not the plan's any more
    next_places: list[int] | None = None  # likewise, while a rebalance is under way
    packing: bool = False  # tasks that will move are put into the store
    moves: int = 0  # rebalances that were carried out
    floor: int = 0  # lives up to this one are of former places
    havoc: Havoc = field(default_factory=Havoc)  # what an experiment does to it now

    def to_bytes(self) -> bytes:
        """The book as MessagePack."""
        values = {  # asdict() of all of it takes ten times as long
            **vars(self),
            "retired": {component: vars(counts) for component, counts in self.retired.items()},
            "proven": sorted(self.proven),
            "quarantined": {task: asdict(why) for task, why in self.quarantined.items()},
            "havoc": self.havoc.to_fields(),
        }
        data: bytes = msgpack.packb(values)
        return data

    @staticmethod
    def from_bytes(data: bytes) -> Book:
        """The book that `to_bytes` has written."""
        fields = msgpack.unpackb(data, strict_map_key=False)
        retired = {component: Counts(**counts) for component, counts in fields["retired"].items()}
        quarantined = {task: TaskError(**why) for task, why in fields["quarantined"].items()}
        havoc = Havoc.from_fields(fields["havoc"])
        whole = {"retired": retired, "quarantined": quarantined, "havoc": havoc}
        whole["proven"] = set(fields["proven"])
        return Book(**{**fields, **whole})
