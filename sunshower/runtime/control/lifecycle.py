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
from dataclasses import dataclass
from enum import StrEnum

from sunshower.errors import LifecycleError
from sunshower.runtime.control import events
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.events.metrics import (
    Counts,
    InputStream,
    TaskStats,
    WorkerStats,
)
from sunshower.runtime.plan import Plan


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


# ---- the table -----------------------------------------------------------------------------------

_MOVES = {  # or stays, if nothing changes
    State.ACTIVE: {State.ACTIVE, State.REBALANCING},
    State.INACTIVE: {State.INACTIVE, State.REBALANCING},
}
# Command → state → what the state can become. In a state that its row lacks, it is refused.
TABLE: Mapping[type[events.Event], Mapping[State, set[State]]] = {
    events.Activate: {
        State.STARTING: {State.STARTING},
        State.ACTIVE: {State.ACTIVE},
        State.INACTIVE: {State.ACTIVE},
    },
    events.Deactivate: {
        State.STARTING: {State.STARTING},
        State.ACTIVE: {State.INACTIVE},
        State.INACTIVE: {State.INACTIVE},
    },
    events.RebalanceTasks: _MOVES,
    events.Upgrade: _MOVES,
    events.Keep: _MOVES,
    events.DrainSpouts: {  # also just after it finished: the caller cannot know
        State.STARTING: {State.DRAINING},
        State.ACTIVE: {State.DRAINING, State.FINISHED},
        State.INACTIVE: {State.DRAINING, State.FINISHED},
        State.REBALANCING: {State.DRAINING, State.FINISHED},
        State.DRAINING: {State.DRAINING},
        State.FINISHED: {State.FINISHED},
    },
    events.Kill: {state: {State.DRAINING, State.KILLED} for state in State}
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


def allow(event: type[events.Event], state: State, topology: str, error: str | None = None) -> None:
    """Raise LifecycleError, which lists the possible commands, if this one is not. `error`: why the
    topology failed."""
    if state in TABLE[event]:
        return
    others = [other.command for other, states in TABLE.items() if state in states]
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
