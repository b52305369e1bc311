"""The master's answers to workers, and its commands to workers and to its adapter."""

from __future__ import annotations

from dataclasses import dataclass, field

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


@dataclass(frozen=True)
class Orders:
    """What the adapter shall do; repeated until it is done, except `replace`."""

    replace: list[int] = field(default_factory=list)  # silent workers: end their process if it can
    # be reached, and create another one
    pack: dict[int, list[int]] = field(default_factory=dict)  # worker → tasks that leave it
    fresh: list[int] = field(default_factory=list)  # of those, the ones that take nothing along
    again: list[int] = field(default_factory=list)  # workers that begin a new life in their process
    create: list[int] = field(default_factory=list)  # workers that need a process
    end: list[int] = field(default_factory=list)  # workers whose process is no longer needed
    unload: bool = False  # whether to remove the stored TaskTransfers
