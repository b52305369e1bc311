"""The states of one topology, the events that its master applies, and the table of both.

                      ┌──deactivate──▶ INACTIVE ──┐ rebalance
    STARTING ──▶ ACTIVE ◀──activate──────┘  ▲     ▼
                   │  └──────rebalance──────┼─▶ REBALANCING ──▶ ACTIVE or INACTIVE, as before
                   │                        └──────┘
                   ├──drain, kill──▶ DRAINING ──all is done──▶ FINISHED ──kill──▶ KILLED
                   │                    └──killed, and the wait is over───────────▲
                   └──the spouts are exhausted──▶ FINISHED      a task failed: FAILED

A state follows from what is stored and from what is observed (`state_of`). `TABLE` says which event
is possible in which state, and what the state becomes; `Master.apply` carries that out. An upgrade
has the states of a rebalance, and so has a savepoint; the tasks then stay packed until the kill,
which ends them at once, for a minute at most. The requests are in the MasterState, so a restarted
master continues; a running wait restarts.
Storm: org.apache.storm.daemon.nimbus.Nimbus (TOPO_STATE_TRANSITIONS). There, too, activating an
active topology is no error, a second kill begins a new wait, and a new leader restarts the waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from sunshower.errors import LifecycleError
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.control.messages import MasterCommand
from sunshower.runtime.events.injected_faults import InjectedFaults
from sunshower.runtime.events.log_lines import LogLine
from sunshower.runtime.events.metrics import (
    Counts,
    InputStream,
    TaskStats,
    WorkerStats,
)
from sunshower.runtime.plan import Layout, Plan
from sunshower.runtime.tasks.flight_recorder import CrashReport


class State(StrEnum):
    """Where a topology stands."""

    STARTING = "starting"  # not all workers have said hello
    ACTIVE = "active"
    INACTIVE = "inactive"  # spouts emit nothing; acks, failures and timeouts go on
    REBALANCING = "rebalancing"  # as inactive, while tasks move
    DRAINING = "draining"  # spouts emit replays only
    FINISHED = "finished"
    KILLED = "killed"
    FAILED = "failed"


NOT_STARTED = frozenset({State.STARTING, State.REBALANCING})  # of a run that was just submitted
_SETTLE_S = 1.0  # untracked records may be in flight: wait until nothing changes


# ---- events --------------------------------------------------------------------------------------


class Event:
    """What the master learns. `command`: its name, if it is one of a client for the topology."""

    command: ClassVar[str] = ""

    @property
    def sender(self) -> tuple[int, int] | None:
        """The worker whose life says it, and that life."""
        return None


@dataclass(frozen=True)
class Activate(Event):
    """Let the spouts emit, in this life of their workers and in later ones."""

    command = "activate"


@dataclass(frozen=True)
class Deactivate(Event):
    """Let the spouts emit nothing, likewise."""

    command = "deactivate"


@dataclass(frozen=True)
class Rebalance(Event):
    """Distribute the tasks over so many workers; `tasks`: their new numbers, by component. Answer:
    the number of this change; 0: nothing changes."""

    command = "rebalance"
    workers: int | None = None  # as many as now
    layout: Layout | None = None  # as now
    wait_s: float | None = None  # for pending trees; the message timeout
    tasks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Upgrade(Event):
    """Let new code replace the present one, or only say what changes. Answer: the number of this
    change (0: a dry run), and a line for each difference."""

    command = "upgrade"
    given: Any  # the Plan; to the process of a master on Ray, as shipped
    wait_s: float | None
    open_s: float  # how long its components may take to open
    dry_run: bool = False


@dataclass(frozen=True)
class Keep(Event):
    """Pack all tasks, for a savepoint. Answer: the number of this change."""

    command = "kill --keep"
    wait_s: float | None = None


@dataclass(frozen=True)
class Drain(Event):
    """Let no spout emit new records, in this life or a later one."""

    command = "drain"


@dataclass(frozen=True)
class Kill(Event):
    """Drain for `wait_s` at most (None: the message timeout), then end. `kept`: the change whose
    savepoint was read; refused if the topology has continued since."""

    command = "kill"
    wait_s: float | None = None
    kept: int | None = None


@dataclass(frozen=True)
class GoOn(Event):
    """Do not wait for the kill after a savepoint. Answer: whether the topology continues."""

    kept: int


@dataclass(frozen=True)
class Disturb(Event):
    """Inject these faults instead of the former ones, in all lives."""

    injected: InjectedFaults


@dataclass(frozen=True)
class Hello(Event):
    """A worker begins a life. Answer: the Welcome."""

    worker: int
    crash_report: CrashReport | None = None  # of its former life


@dataclass(frozen=True)
class OfLife(Event):
    """A life of a worker says something. Ignored if an experiment cuts that life off."""

    worker: int
    life: int  # 0: it has not begun

    @property
    def sender(self) -> tuple[int, int]:
        return self.worker, self.life


@dataclass(frozen=True)
class Beat(OfLife):
    """A heartbeat. Answer: True: it may go on; False: it was replaced and shall end; None: as if
    there was no answer."""


@dataclass(frozen=True)
class Stuck(OfLife):
    """Its watchdog reports a call of user code that has not returned for `for_s`."""

    task: int
    for_s: float
    where: str


@dataclass(frozen=True)
class Logged(OfLife):
    """It sends the log records of its process."""

    lines: Sequence[LogLine]


@dataclass(frozen=True)
class PackFailed(OfLife):
    """It could not pack for a rebalance or an upgrade, which does not happen then."""

    why: str


@dataclass(frozen=True)
class Broken(OfLife):
    """A task failed for good: the topology fails (the first reason is kept), or an upgrade ends."""

    why: str


@dataclass(frozen=True)
class Report(Event):
    """Statistics of a life. Those of a former one are ignored."""

    stats: WorkerStats

    @property
    def sender(self) -> tuple[int, int]:
        return self.stats.worker, self.stats.incarnation


@dataclass(frozen=True)
class Packed(Report):
    """A life has ended for a rebalance; with its last statistics."""


@dataclass(frozen=True)
class Begin(Event):
    """This process of the master begins: workers that a former one knew may have missed things."""


@dataclass(frozen=True)
class Tick(Event):
    """Some time has passed, so that a wait may be over."""


@dataclass(frozen=True)
class Watch(Event):
    """A second is over, in which heartbeats can come: look for silent workers, and for nodes that
    are being drained."""


@dataclass(frozen=True)
class Done(Event):
    """The process of the master has carried out a command."""

    command_done: MasterCommand


# ---- the table -----------------------------------------------------------------------------------

_STAYS = {state: {state} for state in State}
_ON = {State.ACTIVE, State.INACTIVE}  # a topology is one of these again
_MOVES = {state: {state, State.REBALANCING} for state in _ON}  # or stays, if nothing changes

# Event → state → what the state can become. In a state that its row lacks, an event is refused.
TABLE: Mapping[type[Event], Mapping[State, set[State]]] = {
    Activate: {
        State.STARTING: {State.STARTING},
        State.ACTIVE: {State.ACTIVE},
        State.INACTIVE: {State.ACTIVE},
    },
    Deactivate: {
        State.STARTING: {State.STARTING},
        State.ACTIVE: {State.INACTIVE},
        State.INACTIVE: {State.INACTIVE},
    },
    Rebalance: _MOVES,
    Upgrade: _MOVES,
    Keep: _MOVES,
    Drain: {  # also just after it finished: the caller cannot know
        State.STARTING: {State.DRAINING},
        State.ACTIVE: {State.DRAINING, State.FINISHED},
        State.INACTIVE: {State.DRAINING, State.FINISHED},
        State.REBALANCING: {State.DRAINING, State.FINISHED},
        State.DRAINING: {State.DRAINING},
        State.FINISHED: {State.FINISHED},
    },
    Kill: {state: {State.DRAINING, State.KILLED} for state in State}
    | {State.KILLED: {State.KILLED}},
}


@dataclass(frozen=True)
class KillReport:
    """What a topology had done when it was killed."""

    spouts: Mapping[str, Counts]  # component id → counters over all lives of its tasks
    unsettled: int  # records emitted, and neither acked nor given up: lost with the kill
    seconds: float  # from the kill to the end


@dataclass(frozen=True)
class Observations:
    """The master's observations that the state depends on."""

    joined: bool  # every worker has said hello since the last move
    arrived: bool  # and its latest life has sent statistics
    quiet: bool  # spouts are paused, nothing is pending or in flight
    done: bool  # spouts are exhausted, nothing is pending or in flight


class Observer:
    """Makes the observations, from the statistics of the workers."""

    def __init__(self) -> None:
        self._flow, self._flow_since_s = (0, 0), 0.0  # records sent and executed
        self._done_since_s: float | None = None  # since when all reporting spouts are done
        self._done_lives: dict[int, int] = {}  # in which all was done; later reports are late

    def see(self, plan: Plan, tasks: Sequence[TaskStats], now: float) -> None:
        """Statistics have arrived; `tasks`: the latest ones of all tasks."""
        flow = (sum(t.counts.transferred for t in tasks), sum(t.counts.executed for t in tasks))
        if flow != self._flow:
            self._flow, self._flow_since_s = flow, now
        if not _spouts_done(plan, tasks):
            self._done_since_s = None
        elif self._done_since_s is None:
            self._done_since_s = now

    def facts(
        self,
        plan: Plan,
        stats: Mapping[int, WorkerStats],
        lives: Mapping[int, int],
        now: float,
        *,
        arrived: bool,
    ) -> Observations:
        """The observations. `lives`: of the workers that have said hello."""
        workers = stats.values()
        tasks = [task for worker in workers for task in worker.tasks]
        since_s = self._flow_since_s
        if any(c.tick_s is not None for c in plan.graph.components.values()):
            # outputs of ticks never end
            since_s = now if self._done_since_s is None else self._done_since_s
        at_rest = all(worker.at_rest for worker in workers)
        spouts_done = _spouts_done(plan, tasks)
        # The results of windows are sent without a counted input.
        windowed = any(spout.windows for spout in plan.graph.spouts)
        empty = (
            arrived
            and (at_rest or spouts_done)
            and all(worker.idle for worker in workers)
            and (now - since_s >= _SETTLE_S or (not windowed and self._all_received(tasks)))
        )
        done = empty and spouts_done
        if done and (plan.graph.config.tracked or now - since_s >= _SETTLE_S):
            self._done_lives = dict(lives)  # else untracked records may be in flight
        return Observations(
            joined=arrived or set(plan.workers) <= lives.keys(),
            arrived=arrived,
            quiet=empty and at_rest and not any(task.counts.pending for task in tasks),
            done=done or (bool(self._done_lives) and self._done_lives == lives),
        )

    def _all_received(self, tasks: Iterable[TaskStats]) -> bool:
        """Whether all records that were sent have been executed, on each stream: the statistics of
        a bolt may be older than the others, and lack as many inputs as outputs."""
        sent, executed = self._flow
        if sent != executed:
            return False
        in_flight = Counter[InputStream]()
        for task in tasks:
            for stream, count in task.counts.transferred_to.items():
                in_flight[InputStream(task.component, stream)] += count
            in_flight.subtract(task.counts.executed_from)
        return not any(in_flight.values())


def _spouts_done(plan: Plan, tasks: Iterable[TaskStats]) -> bool:
    spouts = {spout.id for spout in plan.spouts}
    return all(task.done for task in tasks if task.task in spouts)


def state_of(stored: MasterState, facts: Observations) -> State:
    """The state of a topology. A failure takes precedence over everything but the kill."""
    if stored.killed:
        return State.KILLED
    if stored.error is not None:
        return State.FAILED
    if stored.draining:
        return State.FINISHED if facts.done and not stored.killing else State.DRAINING
    if stored.is_changing or (stored.moves and not facts.joined):
        return State.REBALANCING
    if not facts.joined:
        return State.STARTING
    if facts.done:
        return State.FINISHED
    return State.ACTIVE if stored.active else State.INACTIVE


def allow(event: type[Event], state: State, topology: str, error: str | None = None) -> None:
    """Raise LifecycleError, which lists the possible commands, if this one is not. `error`: why the
    topology failed."""
    if state in TABLE[event]:
        return
    others = [other.command for other, states in TABLE.items() if other.command and state in states]
    reason = f" ({error.splitlines()[0]})" if error else ""
    raise LifecycleError(
        f"topology {topology!r} is {state}{reason}, and {event.command} is not possible then; "
        f"possible are: {', '.join(others)}"
    )


def why_unchanged(stored: MasterState, number: int, state: State) -> str | None:
    """Why the rebalance or upgrade of that number did not happen, or is in doubt, as the predicate
    of a sentence about the topology; None: it did happen, or is still under way."""
    if number in stored.cancelled:
        return f"has not been changed: {stored.cancelled[number]}"
    if number and number == stored.change and stored.is_changing and state != State.REBALANCING:
        is_upgrade = stored.next_plan is not None or stored.former_plan is not None
        what = "the new code opens" if is_upgrade else "all tasks can move"
        end = "failed" if state == State.FAILED else "was drained or killed"
        return f"{end} before it was known whether {what}; see `sunshower logs`"
    return None


def why_not_kept(stored: MasterState, number: int, state: State) -> str | None:
    """Why there is no savepoint of that number, likewise; None: it is under way."""
    if number in stored.cancelled:
        return f"has no savepoint: {stored.cancelled[number]}"
    if not stored.keeps(number):
        return "has continued, because it was not ended within a minute: it has no savepoint"
    if state != State.REBALANCING:
        end = "failed" if state == State.FAILED else "was drained or killed"
        return f"{end} before all its tasks had stopped: it has no savepoint; see `sunshower logs`"
    return None
