"""What a task takes along when a rebalance gives it a new life, here or in another process."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from sunshower.runtime.plan import Task
from sunshower.runtime.usercode import guard


@dataclass(slots=True)
class Luggage:
    """`instance` and `source` only go along where the process stays; the rest can be pickled."""

    position: int = 0  # spouts: where to go on
    waiting: list[Any] = field(default_factory=list)  # spouts: what has to be emitted again
    ahead: list[Any] = field(default_factory=list)  # spouts: what was taken and is not emitted yet
    exhausted: bool = False
    state: Any = None  # what snapshot() has returned
    instance: Any = None  # the user's object, opened
    source: Iterator[Any] | None = None  # what is left of its records() or tables()


class Packer(Protocol):
    """A spout task or a bolt task."""

    task: Task

    def pack(self, *, stays: bool) -> Luggage: ...
    def close(self) -> None: ...


def pack_all(tasks: Iterable[Packer], leaving: Container[int]) -> dict[int, Luggage]:
    """Task id → luggage. Those that are `leaving` are closed: their objects stay behind.

    Raises TopologyFailed for what user code raises.
    """
    packed: dict[int, Luggage] = {}
    for task in tasks:
        stays = task.task.id not in leaving
        pack = partial(task.pack, stays=stays)
        packed[task.task.id] = guard(task.task, "snapshot or fail", pack)
        if not stays:
            guard(task.task, "close or cleanup", task.close)
    return packed
