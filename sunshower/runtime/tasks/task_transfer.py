"""The state that moves with a task in a rebalance, to a new life in this or another process.

An upgrade moves nothing: no value of the old code gets into the new one. Its tasks are packed
all the same, to check that they keep nothing in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from sunshower.errors import LifecycleError
from sunshower.runtime.events.health import TaskError
from sunshower.runtime.plan import Task
from sunshower.runtime.tasks.spouts.retry_queue import Charges, Replay
from sunshower.runtime.tasks.user_code import Raised


@dataclass(slots=True)
class TaskTransfer:
    """The state of one task. `instance`, `collector`, `rest`, `place` and `source` are set only if
    the process stays; the others can be pickled."""

    committed: int = 0  # spouts: where a new source must continue
    drawn: int = 0
    owed: int = 0  # the bound of records that may have been drawn: see Position
    waiting: list[Replay] = field(default_factory=list)  # spouts: messages to emit again
    charges: dict[int, Charges] = field(
        default_factory=dict
    )  # spouts: message → its charged failures
    event_times: dict[int, Any] = field(default_factory=dict)  # of `waiting`, for windows
    times_ahead: set[int] = field(default_factory=set)  # of these, messages ahead of the clock
    ahead: list[Any] = field(default_factory=list)  # spouts: records taken and not emitted yet
    exhausted: bool = False
    state: Any = None  # the result of snapshot()
    instance: Any = None  # the user's object, opened
    collector: Any = None  # manual level: the collector, which the object may have kept
    rest: Any = None  # spouts: the PollBackoff, which the object may wake
    place: Any = None  # the Position in the source
    source: Iterator[Any] | None = None  # the rest of its records() or tables()


TaskTransfer.__module__ = "sunshower.runtime.control.task_transfer"  # its name in savepoints

SaveTransfer = Callable[[int, TaskTransfer], None] | None  # of the task with this id; None: none


class Packer(Protocol):
    """An open spout task or bolt task."""

    task: Task

    def pack(self, *, stays: bool, now: float) -> TaskTransfer: ...
    def close(self) -> TaskError | None: ...


def pack_all(
    tasks: Iterable[Packer],
    left: Mapping[int, TaskTransfer],
    leaving: Container[int],
    now: float,
    call: Callable[..., Any],
    save: SaveTransfer,
) -> dict[int, TaskTransfer]:
    """Pack all open tasks: task id → TaskTransfer. Closes tasks whose object does not move on.

    `left`: of tasks that are not open yet; `call`: see UserCodeCalls; `save` gets what leaves.
    Raises LifecycleError if snapshot() or `save` raises: then all tasks are as they were.
    """
    packed, tasks = dict(left), [*tasks]
    for task in tasks:
        pack = partial(task.pack, stays=task.task.id not in leaving, now=now)
        try:
            packed[task.task.id] = call(task.task, "snapshot", pack)
        except Raised as raised:
            raise LifecycleError(raised.error.story) from raised.__cause__
    for id, transfer in packed.items():
        if save is not None and id in leaving:
            save(id, transfer)
    for task in tasks:
        if packed[task.task.id].instance is None:
            call(task.task, "close", task.close)
    return packed


def check_nothing_kept(name: str, transfer: TaskTransfer) -> None:
    """Raise LifecycleError if a task of that component keeps in memory what new code, or another
    number of tasks, would lose."""
    if transfer.state is not None:
        raise LifecycleError(
            f"the snapshot() of {name!r} returned a state that it keeps in memory, which does not "
            "go into new code or to another number of tasks: give it a state= in a store, or kill "
            "the topology and submit it"
        )
    if count := len(transfer.waiting) + len(transfer.ahead):
        raise LifecycleError(
            f"not all records of the spout {name!r} are processed yet: {count} in memory, "
            "which does not go into new code: try again when no record of it is pending or waits "
            "to be emitted again"
        )
