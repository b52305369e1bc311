"""What a task takes along when a rebalance gives it a new life, here or in another process."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from sunshower.errors import TopologyFailed
from sunshower.runtime.plan import Task
from sunshower.runtime.position import Position
from sunshower.runtime.retries import Blame, Replay
from sunshower.runtime.usercode import Raised, TaskError

if TYPE_CHECKING:  # calls.py knows bolt tasks, and these know this
    from sunshower.runtime.calls import Calls


@dataclass(slots=True)
class Luggage:
    """`instance`, `place` and `source` only go along where the process stays; the rest can be
    pickled."""

    committed: int = 0  # spouts: where a new source has to go on
    drawn: int = 0
    owed: int = 0  # what may have been drawn: see position.py
    waiting: list[Replay] = field(default_factory=list)  # spouts: what has to be emitted again
    blames: dict[int, Blame] = field(default_factory=dict)  # spouts: message → its failures
    ahead: list[Any] = field(default_factory=list)  # spouts: what was taken and is not emitted yet
    exhausted: bool = False
    state: Any = None  # what snapshot() has returned
    instance: Any = None  # the user's object, opened
    hands: Any = None  # manual bolts: the collector, which the object may have kept
    place: Position | None = None  # in the source
    source: Iterator[Any] | None = None  # what is left of its records() or tables()


class Packer(Protocol):
    """A spout task or a bolt task that is open."""

    task: Task

    def pack(self, *, stays: bool, now: float) -> Luggage: ...
    def close(self) -> TaskError | None: ...


def pack_all(
    tasks: Iterable[Packer], leaving: Container[int], now: float, call: Calls
) -> dict[int, Luggage]:
    """Task id → luggage. Those whose object stays behind, such as `leaving` ones, are closed.

    Raises TopologyFailed for what user code raises in snapshot().
    """
    packed: dict[int, Luggage] = {}
    for task in tasks:
        pack = partial(task.pack, stays=task.task.id not in leaving, now=now)
        try:
            packed[task.task.id] = call(task.task, "snapshot", pack)
        except Raised as raised:
            raise TopologyFailed(raised.error.story) from raised.__cause__
        if packed[task.task.id].instance is None:
            call(task.task, "close", task.close)
    return packed
