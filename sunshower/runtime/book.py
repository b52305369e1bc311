"""What a topology must not forget when its master dies: the next one goes on from here."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

import msgpack

from sunshower.runtime.metrics import Counts
from sunshower.runtime.usercode import TaskError


@dataclass
class Book:
    """Kept in a store. What workers can tell again (their counters) is not in it."""

    lives: dict[int, int] = field(default_factory=dict)  # worker → how often it has said hello
    retired: dict[str, Counts] = field(default_factory=dict)  # what dead incarnations had done
    quarantined: dict[int, TaskError] = field(default_factory=dict)  # task → why
    positions: dict[int, int] = field(default_factory=dict)  # spout task → TaskStats.committed
    drawn: dict[int, int] = field(default_factory=dict)  # spout task → TaskStats.drawn
    suspects: dict[int, dict[int, int]] = field(default_factory=dict)  # spout task → message →
    # how often the task's own process died while it was executing a record of it
    draining: bool = False  # spouts emit nothing new
    error: str | None = None  # why the topology gave up

    def to_bytes(self) -> bytes:
        """The book as MessagePack."""
        data: bytes = msgpack.packb(asdict(self))
        return data

    @staticmethod
    def from_bytes(data: bytes) -> Book:
        """The book that `to_bytes` has written."""
        fields = msgpack.unpackb(data, strict_map_key=False)
        retired = {component: Counts(**counts) for component, counts in fields["retired"].items()}
        quarantined = {task: TaskError(**why) for task, why in fields["quarantined"].items()}
        return Book(**{**fields, "retired": retired, "quarantined": quarantined})
