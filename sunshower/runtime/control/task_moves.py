"""Carries out a rebalance or an upgrade: the valid plan, the stored tasks, the next commands.

An upgrade moves all tasks to new workers, with the new code, which is *opening* until all
components are open. Until then the spouts emit nothing. If a component does not open, the former
plan is in force again, on new processes of its workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.control.messages import Orders
from sunshower.runtime.control.plan_changes import ends_anew, leaving
from sunshower.runtime.events.metrics import TaskStats
from sunshower.runtime.plan import Plan
from sunshower.runtime.tasks.supervision import Standing

_KEEP_S = 60.0  # how long all stay packed, until the client of a savepoint ends the topology
ROLLED_BACK = "the new code did not open, and the old code continues: "  # begins the reason


class TaskMoves:
    """The plan in force and the next one. Their numbers and tasks are in the MasterState."""

    def __init__(self, plan: Plan, stored: MasterState, other: Plan | None, now: float) -> None:
        """`plan`, `other`: those with the numbers `stored.plan` and `stored.other_plan`."""
        self.plan = plan.with_tasks(stored.tasks)
        self.next_plan = other if stored.former_plan is None else None
        self._former = None if stored.former_plan is None else other
        self._opening_since_s = now
        self._stored = stored
        self._packed: set[int] = set()  # workers
        self._unloaded = False
        self._packed_since_s: float | None = None  # all workers, for a savepoint

    def packs(self, worker: int) -> None:
        """A worker has packed."""
        self._packed.add(worker)

    def begins(self, worker: int) -> None:
        """A worker has said hello: what it had packed is packed again."""
        self._packed.discard(worker)

    def unloaded(self) -> None:
        """The stored TaskTransfers were removed."""
        self._unloaded = True

    @property
    def has_packed(self) -> bool:
        """Whether all workers have packed."""
        return self._stored.packing and self._packed >= set(self.plan.workers)

    @property
    def is_kept(self) -> bool:
        """Whether all workers have packed for a savepoint."""
        return self._stored.keeping and self.has_packed

    def may_move(self, now: float) -> bool:
        """Whether the tasks can move. For a savepoint they wait for the kill, and move to new
        processes if it does not come."""
        if not self.is_kept:
            return self.has_packed
        if self._packed_since_s is None:
            self._packed_since_s = now
        return not self._stored.killing and now - self._packed_since_s >= _KEEP_S

    def move(self, now: float) -> None:
        """The MasterState has the next tasks: they are in force from now on."""
        if self.is_opening:
            assert self.next_plan is not None
            self._former, self._opening_since_s = self.plan, now
            self.plan = self.next_plan
        self.next_plan = None
        self._begin_tasks()

    @property
    def is_opening(self) -> bool:
        """Whether a new plan is in force whose components are not all open yet."""
        return self._stored.former_plan is not None

    def end_opening(self, tasks: Sequence[TaskStats], now: float, *, arrived: bool) -> str | None:
        """Keep a new plan if all components are open. Returns why not, if one will not be."""
        stored, code = self._stored, self.plan.graph.components
        if not self.is_opening:
            return None
        unopened = {task.id: task for task in self.plan.tasks if task.component in code}
        for task in tasks:
            if task.health.standing is Standing.RUNNING and task.health.wait is None:
                unopened.pop(task.task, None)
        if arrived and not unopened and not stored.quarantined:
            stored.former_plan = stored.former_tasks = self._former = None
            stored.forget_all_but(self.plan)
            return None
        for why in stored.quarantined.values():
            return why.story
        if now - self._opening_since_s < stored.open_s:
            return None
        names = ", ".join(sorted({task.component for task in unopened.values()}))
        errors = [task.health.last[-1].story for task in tasks if task.health.last]
        why_not = f"{names} did not open within {stored.open_s:g} s (--timeout)"
        return ". ".join([why_not, *errors[-1:]])

    def roll_back(self, why: str) -> None:
        """Let the former plan be in force again."""
        stored, failed = self._stored, self.plan
        assert stored.former_plan is not None
        assert self._former is not None
        stored.plan, stored.tasks = stored.former_plan, stored.former_tasks
        stored.former_plan = stored.former_tasks = None
        stored.note_cancelled(ROLLED_BACK + why)
        stored.forget_former_code()
        for worker in failed.workers:  # also those that have not said hello: all processes must end
            stored.lives.setdefault(worker, stored.floor)
        stored.floor = max(stored.lives.values())
        self.plan, self._former = self._former, None
        self._begin_tasks()

    def _begin_tasks(self) -> None:
        self._packed, self._unloaded, self._packed_since_s = set(), False, None
        self.plan = self.plan.with_tasks(self._stored.tasks)

    def is_under_way(self, lives: Mapping[int, int]) -> bool:
        """Whether there may be orders. `lives`: of the workers that have said hello."""
        stored = self._stored
        unsettled = stored.moves and (lives != stored.lives or not self._unloaded)
        return bool(stored.is_changing or unsettled)

    def orders(self, found: Orders, lives: Mapping[int, int], *, arrived: bool) -> Orders:
        """`found`, and what the rebalance needs. `arrived`: all workers run in their new places."""
        stored = self._stored
        if stored.packing and stored.next_tasks:
            upgrade = self.next_plan if stored.next_plan is not None else None
            then = upgrade or self.plan.with_tasks(stored.next_tasks)
            gone = leaving(self.plan, then)
            fresh = gone if upgrade else ends_anew(self.plan, then)
            unpacked = [worker for worker in self.plan.workers if worker not in self._packed]
            pack = {w: [t.id for t in gone if t.worker == w] for w in unpacked}
            return replace(found, pack=pack, fresh=[task.id for task in fresh])
        if not stored.moves:
            return found
        unjoined = [worker for worker in self.plan.workers if worker not in lives]
        return replace(
            found,
            again=[worker for worker in unjoined if worker in stored.lives],
            create=[*found.create, *(w for w in unjoined if w not in stored.lives)],
            end=[worker for worker in stored.lives if worker not in self.plan.workers],
            unload=arrived and not self._unloaded and not self.is_opening,
        )
