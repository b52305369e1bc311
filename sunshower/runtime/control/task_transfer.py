"""The state that moves with a task in a rebalance, to a new life in this or another process."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from sunshower.errors import TopologyFailed
from sunshower.runtime.plan import Task
from sunshower.runtime.tasks.spouts.position import Position
from sunshower.runtime.tasks.spouts.retry_queue import Charges, Replay
from sunshower.runtime.tasks.user_code import Raised, TaskError


@dataclass(slots=True)
class TaskTransfer:
    """The state of one task. `instance`, `collector`, `place` and `source` are set only if the
    process stays; the rest can be pickled."""

    committed: int = 0  # spouts: where a new source must continue
    drawn: int = 0
    owed: int = 0  # the bound of records that may have been drawn: see position.py
    waiting: list[Replay] = field(default_factory=list)  # spouts: messages to emit again
    charges: dict[int, Charges] = field(
        default_factory=dict
    )  # spouts: message → its charged failures
    event_times: dict[int, float] = field(default_factory=dict)  # of `waiting`, for windows
    ahead: list[Any] = field(default_factory=list)  # spouts: records taken and not emitted yet
    exhausted: bool = False
    state: Any = None  # the result of snapshot()
    instance: Any = None  # the user's object, opened
    collector: Any = None  # manual bolts: the collector, which the object may have kept
    place: Position | None = None  # in the source
    source: Iterator[Any] | None = None  # the rest of its records() or tables()


class Packer(Protocol):
    """An open spout task or bolt task."""

    task: Task

    def pack(self, *, stays: bool, now: float) -> TaskTransfer: ...
    def close(self) -> TaskError | None: ...


def pack_all(
    tasks: Iterable[Packer], leaving: Container[int], now: float, call: Callable[..., Any]
) -> dict[int, TaskTransfer]:
    """Pack all tasks: task id → TaskTransfer. Closes tasks whose object does not move on. `call`:
    see UserCodeCalls.

    Raises TopologyFailed if snapshot() raises.
    """
    packed: dict[int, TaskTransfer] = {}
    for task in tasks:
        pack = partial(task.pack, stays=task.task.id not in leaving, now=now)
        try:
            packed[task.task.id] = call(task.task, "snapshot", pack)
        except Raised as raised:
            raise TopologyFailed(raised.error.story) from raised.__cause__
        if packed[task.task.id].instance is None:
            call(task.task, "close", task.close)
    return packed
