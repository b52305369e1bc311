"""Carries out a rebalance: which plan counts, which workers have packed, and what is ordered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.control.messages import Orders
from sunshower.runtime.control.placement import placed
from sunshower.runtime.control.plan_changes import leaving
from sunshower.runtime.plan import Plan


class TaskMoves:
    """The present plan and the next one. Their numbers and places are in the MasterState."""

    def __init__(self, plan: Plan, stored: MasterState, next_plan: Plan | None) -> None:
        """`plan`, `next_plan`: those with the numbers `stored.plan` and `stored.next_plan`."""
        self.plan = placed(plan, stored.places)
        self.next_plan = next_plan
        self._unplaced = plan
        self._stored = stored
        self._packed: set[int] = set()  # workers
        self._unloaded = False

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
        """Whether the tasks can move: all workers have packed."""
        return self._stored.packing and self._packed >= set(self.plan.workers)

    def move(self) -> None:
        """The MasterState has the next places: they count from now on."""
        if self.next_plan is not None and self._stored.next_plan is None:
            self._unplaced, self.next_plan = self.next_plan, None
        self._packed, self._unloaded = set(), False
        self.plan = placed(self._unplaced, self._stored.places)
        self._stored.forget_all_but({task.id for task in self.plan.tasks})

    def is_under_way(self, lives: Mapping[int, int]) -> bool:
        """Whether there may be orders. `lives`: of the workers that have said hello."""
        stored = self._stored
        unsettled = stored.moves and (lives != stored.lives or not self._unloaded)
        return bool(stored.next_places or unsettled)

    def orders(self, found: Orders, lives: Mapping[int, int], *, arrived: bool) -> Orders:
        """`found`, and what the rebalance needs. `arrived`: all workers run in their new places."""
        stored = self._stored
        if stored.packing and stored.next_places:
            then = self._unplaced if self.next_plan is None else self.next_plan
            gone = leaving(self.plan, placed(then, stored.next_places))
            unpacked = [worker for worker in self.plan.workers if worker not in self._packed]
            pack = {w: [t.id for t in gone if t.worker == w] for w in unpacked}
            return replace(found, pack=pack)
        if not stored.moves:
            return found
        unjoined = [worker for worker in self.plan.workers if worker not in lives]
        return replace(
            found,
            again=[worker for worker in unjoined if worker in stored.lives],
            create=[*found.create, *(w for w in unjoined if w not in stored.lives)],
            end=[worker for worker in stored.lives if worker not in self.plan.workers],
            unload=arrived and not self._unloaded,
        )
