"""The master's answers to workers, and its commands to its process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sunshower.runtime.control.overview import Conditions
from sunshower.runtime.events.health import Quarantine
from sunshower.runtime.events.injected_faults import InjectedFaults
from sunshower.runtime.plan import Task


@dataclass(frozen=True)
class DesiredState:
    """What the spouts shall do, which faults to inject, and the conditions of the components."""

    active: bool = True  # spouts emit
    draining: bool = False  # spouts emit replays only
    injected: InjectedFaults = field(default_factory=InjectedFaults)
    conditions: Conditions = field(default_factory=Conditions)
    is_opening: bool = False  # new code is being opened, which may be rolled back: nothing ticks
    keeping: bool = False  # what is packed goes into a savepoint: other code will read it


@dataclass(frozen=True)
class Welcome:
    """The master's answer to the hello of a worker."""

    life: int
    lives: dict[int, int]  # all known workers, and the life of each
    desired_state: DesiredState = DesiredState()
    plan: int = 0  # the number of the plan; 0: as submitted
    tasks: list[Task] | None = None  # if not as in that plan
    move: int = 0  # the rebalance whose TaskTransfers may be stored; 0: none
    delay_s: float = 0.0  # before its tasks may open
    quarantined: dict[int, Quarantine] = field(default_factory=dict)  # tasks that are not run yet
    positions: dict[int, tuple[int, int]] = field(default_factory=dict)  # its spout tasks →
    # records settled, and records drawn
    owed: dict[int, int] = field(default_factory=dict)  # its spout tasks → no record from this one
    # on was drawn; only tasks in a crash report
    suspects: dict[int, dict[int, int]] = field(default_factory=dict)  # its spout tasks → message →
    # crashes of their own process
    silent_s: float = 0.0  # for which its former life was silent, and replaced for that


# ---- commands ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tell:
    """Call a method of a worker, without waiting for it."""

    worker: int
    what: str
    given: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Replace:
    """End the process of a silent worker, if it can be reached; `Create` follows."""

    worker: int


@dataclass(frozen=True)
class Create:
    """Create the processes of these workers, unless there is one or one is starting."""

    workers: tuple[int, ...]


@dataclass(frozen=True)
class End:
    """End the process of a worker that is no longer needed. Repeated until it is done."""

    worker: int


@dataclass(frozen=True)
class Unload:
    """Remove what workers stored for a rebalance. Repeated until it is done."""


MasterCommand = Tell | Replace | Create | End | Unload
