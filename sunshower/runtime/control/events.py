"""The events of a topology, from clients, workers and its own process, and its master's answers.

lifecycle.py says in which state an event is possible; master.py applies it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, dataclass_transform

from sunshower.runtime.control.overview import Conditions
from sunshower.runtime.events.health import Quarantine
from sunshower.runtime.events.injected_faults import InjectedFaults
from sunshower.runtime.events.log_lines import LogLine
from sunshower.runtime.events.metrics import WorkerStats
from sunshower.runtime.plan import Layout, Task
from sunshower.runtime.tasks.flight_recorder import CrashReport

# ---- answers to workers --------------------------------------------------------------------------


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

# ---- events --------------------------------------------------------------------------------------


@dataclass_transform(frozen_default=True)
class Event:
    """A frozen dataclass. `kind`: its name, such as pack_failed, which Master._on_pack_failed
    applies; `command`: as users know it."""

    kind: ClassVar[str]
    command: ClassVar[str]

    def __init_subclass__(cls) -> None:
        cls.kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()
        cls.command = cls.__dict__.get("command", cls.kind)
        dataclass(frozen=True)(cls)


class Activate(Event):
    """Let the spouts emit, in this life of their workers and in later ones."""


class Deactivate(Event):
    """Let the spouts emit nothing, likewise."""


class RebalanceTasks(Event):
    """Distribute the tasks over so many workers; `tasks`: their new numbers, by component. Answer:
    the number of this change; 0: nothing changes."""

    command = "rebalance"
    workers: int | None = None  # as many as now
    layout: Layout | None = None  # as now
    wait_s: float | None = None  # for pending trees; the message timeout
    tasks: Mapping[str, int] = field(default_factory=dict)
    auto: bool = False  # numbers that are not given follow the load again: see Scaling.by_hand
    is_scaling: bool = False  # whether the load asks for it, and no hand


class Upgrade(Event):
    """Let new code replace the present one, or only say what changes. Answer: the number of this
    change (0: a dry run), and a line for each difference."""

    given: Any  # the Plan; to the process of a master on Ray, as shipped
    wait_s: float | None
    open_s: float  # how long its components may take to open
    dry_run: bool = False


class Keep(Event):
    """Pack all tasks, for a savepoint. Answer: the number of this change."""

    command = "kill --keep"
    wait_s: float | None = None


class DrainSpouts(Event):
    """Let no spout emit new records, in this life or a later one."""

    command = "drain"


class Kill(Event):
    """Drain for `wait_s` at most (None: the message timeout), then end. `kept`: the change whose
    savepoint was read; refused if the topology has continued since."""

    wait_s: float | None = None
    kept: int | None = None


class GoOn(Event):
    """Do not wait for the kill after a savepoint. Answer: whether the topology continues."""

    kept: int


class Disturb(Event):
    """Inject these faults instead of the former ones, in all lives."""

    injected: InjectedFaults


class Hello(Event):
    """A worker begins a life. Answer: the Welcome."""

    worker: int
    crash_report: CrashReport | None = None  # of its former life


class OfLife(Event):
    """A life of a worker says something. Ignored if an experiment cuts that life off."""

    worker: int
    life: int  # 0: it has not begun

    @property
    def sender(self) -> tuple[int, int]:
        """The worker, and its life."""
        return self.worker, self.life


class Beat(OfLife):
    """A heartbeat. Answer: True: it may go on; False: it was replaced and shall end; None: as if
    there was no answer."""


class Stuck(OfLife):
    """Its watchdog reports a call of user code that has not returned for `for_s`."""

    task: int
    for_s: float
    where: str


class Logged(OfLife):
    """It sends the log records of its process."""

    lines: Sequence[LogLine]


class PackFailed(OfLife):
    """It could not pack for a rebalance or an upgrade, which does not happen then."""

    why: str


class Broken(OfLife):
    """A task failed for good: the topology fails (the first reason is kept), or an upgrade ends."""

    why: str


class Statistics(Event):
    """Those of a life. Those of a former one are ignored."""

    stats: WorkerStats

    @property
    def sender(self) -> tuple[int, int]:
        """As of OfLife."""
        return self.stats.worker, self.stats.incarnation


class Packed(Statistics):
    """A life has ended for a rebalance; with its last statistics."""


class MasterBegins(Event):
    """This process of the master begins: workers that a former one knew may have missed things."""


class Tick(Event):
    """Some time has passed, so that a wait may be over."""


class Watch(Event):
    """A second is over, in which heartbeats can come: look for silent workers, and for nodes that
    are being drained."""


class Done(Event):
    """The process of the master has carried out a command."""

    command_done: MasterCommand
