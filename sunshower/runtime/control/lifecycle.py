"""The states of one topology, and the commands that are possible in each state.

                      ┌──deactivate──▶ INACTIVE ──┐ rebalance
    STARTING ──▶ ACTIVE ◀──activate──────┘  ▲     ▼
                   │  └──────rebalance──────┼─▶ REBALANCING ──▶ ACTIVE or INACTIVE, as before
                   │                        └──────┘
                   ├──drain, kill──▶ DRAINING ──all is done──▶ FINISHED ──kill──▶ KILLED
                   │                    └──killed, and the wait is over───────────▲
                   └──the spouts are exhausted──▶ FINISHED      a task failed: FAILED

An upgrade is possible when a rebalance is, and has the same states. So is a savepoint; the tasks
then stay packed until the kill, which ends them at once, for a minute at most. `kill`, and the
failure of a task, are possible in every state; `drain` in every state before the end. The requests
are in the MasterState, so a restarted master continues; a running wait restarts.
Storm: org.apache.storm.daemon.nimbus.Nimbus (TOPO_STATE_TRANSITIONS). There, too, activating an
active topology is no error, a second kill begins a new wait, and a new leader restarts the waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sunshower.errors import LifecycleError
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.events.metrics import (
    Counts,
    InputStream,
    Snapshot,
    TaskStats,
    WorkerStats,
)
from sunshower.runtime.plan import Plan, Task
from sunshower.topologies.graph import Component

_SETTLE_S = 1.0  # untracked records may be in flight: wait until nothing changes


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


class Command(StrEnum):
    """The commands for a topology."""

    ACTIVATE = "activate"
    DEACTIVATE = "deactivate"
    REBALANCE = "rebalance"
    UPGRADE = "upgrade"
    KEEP = "kill --keep"
    DRAIN = "drain"
    KILL = "kill"


_BEFORE_THE_END = frozenset(State) - {State.KILLED, State.FAILED}
POSSIBLE: Mapping[Command, frozenset[State]] = {
    Command.ACTIVATE: frozenset({State.STARTING, State.ACTIVE, State.INACTIVE}),
    Command.DEACTIVATE: frozenset({State.STARTING, State.ACTIVE, State.INACTIVE}),
    Command.REBALANCE: frozenset({State.ACTIVE, State.INACTIVE}),
    Command.UPGRADE: frozenset({State.ACTIVE, State.INACTIVE}),
    Command.KEEP: frozenset({State.ACTIVE, State.INACTIVE}),
    Command.DRAIN: _BEFORE_THE_END,  # also just after it finished: the caller cannot know
    Command.KILL: frozenset(State),
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


class Lifecycle:
    """Records the commands for one topology in its MasterState, and tracks the waits they start.

    All times are in seconds on a monotonic clock of the caller.
    """

    def __init__(self, topology: str, stored: MasterState, now: float) -> None:
        self._topology = topology
        self._stored = stored
        self._since_s = now  # of the kill or the rebalance that is under way

    def state(self, facts: Observations) -> State:
        """The state of the topology. A failure takes precedence over everything but the kill."""
        stored = self._stored
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

    def allow(self, command: Command, state: State) -> None:
        """Raise LifecycleError, which lists the possible commands, if this one is not."""
        if state in POSSIBLE[command]:
            return
        others = [str(other) for other, states in POSSIBLE.items() if state in states]
        reason = f" ({self._stored.error.splitlines()[0]})" if self._stored.error else ""
        raise LifecycleError(
            f"topology {self._topology!r} is {state}{reason}, and {command} is not possible then; "
            f"possible are: {', '.join(others)}"
        )

    def activate(self, active: bool) -> None:
        """Activate or deactivate the spouts."""
        self._stored.active = active

    def drain(self) -> None:
        """Emit no new records from now on. A change that is not packing yet is cancelled."""
        self._stored.draining = True
        if self._stored.next_tasks and not self._stored.packing:
            self.cancel("the topology was drained or killed before its tasks had stopped")

    def kill(self, wait_s: float, now: float, kept: int | None = None) -> None:
        """Drain for `wait_s` at most, then end. A second kill begins a new wait. `kept`: the change
        whose savepoint was read; raises LifecycleError if the topology has continued since."""
        if kept is not None and not self._stored.keeps(kept):
            raise LifecycleError(
                f"topology {self._topology!r} is not ended: it has continued since its savepoint, "
                "which must not be used, because it was not ended within a minute. Try again"
            )
        self.drain()
        self._stored.killing = True
        self._stored.wait_s, self._since_s = wait_s, now

    def change(
        self,
        present: Sequence[Task],
        tasks: Sequence[Task],
        wait_s: float,
        now: float,
        *,
        is_upgrade: bool = False,
        keeps: bool = False,
    ) -> int:
        """Wait up to `wait_s` for pending trees, then let `tasks` replace the present ones; in
        an upgrade they are tasks of a new plan. `keeps`: make a savepoint first. Returns the number
        of this change."""
        stored = self._stored
        stored.change += 1
        stored.next_tasks, stored.next_plan = [*tasks], stored.change if is_upgrade else None
        stored.keeping = keeps
        stored.last_task_id = max(stored.last_task_id, *(task.id for task in [*present, *tasks]))
        stored.wait_s, self._since_s = wait_s, now
        return stored.change

    def go_on(self, number: int, present: Sequence[Task]) -> bool:
        """Cancel the savepoint of that number, if it is under way. Returns whether the topology
        continues; False: it is being killed."""
        if not self._stored.killing and self._stored.keeps(number):
            self.cancel("its savepoint was not stored", present)
        return not self._stored.killing

    def cancel(self, why: str, tasks: Sequence[Task] = ()) -> None:
        """Give up the change under way. If workers pack already, all of them begin a new life with
        the same `tasks` as before."""
        stored = self._stored
        stored.note_cancelled(why)
        stored.next_plan, stored.next_tasks = None, [*tasks] if stored.packing else None
        stored.keeping = False

    def look(self, facts: Observations, now: float, *, is_kept: bool = False) -> None:
        """Continue if a wait is over or no longer needed; `is_kept`: all is packed for a
        savepoint, so that nothing would finish."""
        stored = self._stored
        waited = now >= self._since_s + stored.wait_s
        if stored.killing and (waited or facts.done or is_kept or stored.error is not None):
            stored.killed = True
        elif stored.next_tasks and facts.arrived and (waited or facts.quiet):
            stored.packing = True

    def move(self) -> None:
        """Apply the next tasks, once all workers have packed; all workers begin new lives."""
        stored = self._stored
        assert stored.next_tasks
        former = stored.tasks
        stored.tasks, stored.next_tasks, stored.packing = stored.next_tasks, None, False
        stored.keeping = False
        if stored.next_plan is not None:
            stored.former_plan, stored.former_tasks = stored.plan, former
            stored.plan, stored.next_plan = stored.next_plan, None
            stored.forget_former_code()
        stored.floor = max(stored.lives.values())
        stored.moves += 1

    def report(self, last: Snapshot, spouts: Iterable[Component], now: float) -> KillReport:
        """The report after a kill, from the last statistics."""
        counts = {spout.id: last.component(spout.id) for spout in spouts}
        unsettled = sum(task.unsettled for task in last.tasks())
        return KillReport(counts, unsettled, now - self._since_s)


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
