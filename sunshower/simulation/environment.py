"""The environment of one simulated run: data that its processes share, or that survive them."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from mmap import mmap
from typing import TYPE_CHECKING

from sunshower.errors import LifecycleError, user_errors
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.control.task_transfer import TaskTransfer
from sunshower.runtime.events.event_log import Entry
from sunshower.runtime.plan import Plan
from sunshower.runtime.savepoint import Savepoint
from sunshower.runtime.value_copies import packed
from sunshower.simulation.network import Network
from sunshower.simulation.world import SimConditions, World
from sunshower.texts import describe_error

if TYPE_CHECKING:
    import numpy as np


STATE = "master"  # the key of the MasterState in the store


class SimReservationStore(dict[int, int]):
    """The emit reservations of all spout tasks; they survive the end of any machine."""

    def read(self, task: int) -> int:
        return self.get(task, 0)

    def write(self, task: int, number: int) -> None:
        self[task] = number


@dataclass(frozen=True)
class SimEnvironment:
    """The world, network, stores and settings of one run."""

    world: World
    conditions: SimConditions
    network: Network
    generator: np.random.Generator  # shared by all workers: one thread, one seed
    plan: Plan  # as submitted; for the others see `plans`
    sample: int | None  # None: no event log
    check: bool  # check the invariants of a worker after each of its slices
    store: dict[str, bytes] = field(default_factory=dict)  # the MasterState, under STATE
    transfer: dict[tuple[int, int], TaskTransfer] = field(default_factory=dict)  # by move, task
    reservations: SimReservationStore = field(default_factory=SimReservationStore)
    plans: dict[int, Plan] = field(default_factory=dict)  # by number: of upgrades
    recorders: dict[int, tuple[str, mmap]] = field(default_factory=dict)  # worker → node, recorder
    entries: list[list[Entry]] = field(default_factory=list)  # the event log, by process

    def resume(self, savepoint: Savepoint, state: MasterState) -> None:
        """Store what the processes of a run find that continues from a savepoint."""
        for task, data in savepoint.transfers.items():
            self.transfer[state.moves, task] = pickle.loads(data)  # noqa: S301 (of this program)
        self.store[STATE] = state.to_bytes()

    def packed(self, move: int, task: int) -> bytes | None:
        """The pickled TaskTransfer of a task. Raises LifecycleError if it cannot be pickled."""
        if (transfer := self.transfer.get((move, task))) is None:
            return None
        try:
            return packed(transfer, self.plan.record_types)
        except user_errors() as error:
            found = next((one.component for one in self.plan.tasks if one.id == task), task)
            raise LifecycleError(
                f"{found!r} cannot be kept: what its snapshot() returned, or a message id, cannot "
                f"be pickled ({describe_error(error)}). Return plain values"
            ) from error

    def plan_of(self, number: int) -> Plan:
        """The plan of that number."""
        return self.plans[number] if number else self.plan
