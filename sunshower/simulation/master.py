"""The simulated process around the master: what `actors/master.py` is on Ray."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from sunshower.runtime.control.crash_report import CrashReport
from sunshower.runtime.control.lifecycle import State
from sunshower.runtime.control.master import DesiredState, Master, Welcome
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.events.metrics import WorkerStats
from sunshower.simulation.network import MASTER, Process
from sunshower.simulation.site import SimEnvironment

T = TypeVar("T")
_BOOK = "book"
_SAVE_S = 1.0  # how often the workers' positions are stored
_LOOK_S = 0.1  # how often to call `look` during a kill or rebalance


class Machines(Protocol):
    """Starts and ends processes."""

    def create(self, worker: int) -> None: ...
    def end(self, worker: int) -> None: ...


class SimMaster(Process):
    """One life of the master. Its MasterState is in the store, as bytes."""

    def __init__(
        self, site: SimEnvironment, node: str, machines: Machines, *, active: bool
    ) -> None:
        super().__init__(site.world, site.conditions, MASTER, node)
        self._site = site
        self._machines = machines
        book = site.store.read(_BOOK)
        found = MasterState.from_bytes(book) if book else MasterState(active=active)
        self.core = Master(site.plan, found, self.clock.now())
        self.heard = True  # whether anything arrived since the run last checked
        self._saved = book
        self._saved_s = self._world.now_s
        self._desired_state: DesiredState | None = None  # as last sent to all workers
        self._will_look = False
        for worker in self.core.lives:  # a former master knew them: ask for what was missed
            self._tell(worker, "report")
            self._tell_lives(worker)  # the former master may have died before that
        self._obey()

    # ---- remote calls ----------------------------------------------------------------------

    def hello(
        self,
        caller: Process,
        welcomed: Callable[[Welcome | None], None],
        crash_report: CrashReport | None,
    ) -> None:
        """A worker has started; answers with the Welcome."""
        worker, now = caller.address, self.clock.now()
        welcome: Welcome = self.change(lambda master: master.hello(worker, now, crash_report))
        for other in welcome.lives:
            if other != worker:
                self._tell_lives(other)
        self._site.network.answer(self, caller, welcomed, welcome)

    def hear(self, stats: WorkerStats) -> None:
        """Process the statistics of a worker."""
        self.heard = True
        self.core.hear(stats, self.clock.now())
        if self.core.restless or self._desired_state != self.core.desired_state:
            self._obey()
        elif self._world.now_s - self._saved_s >= _SAVE_S:  # positions: older ones cause replays
            self._save()

    def packed(self, stats: WorkerStats) -> None:
        """A worker has ended its life for a rebalance."""
        self.change(lambda master: master.packed(stats, self.clock.now()))

    def broken(self, text: str) -> None:
        """A task failed, and so the topology fails."""
        self.change(lambda master: master.broken(text))

    # ---- calls of the run ------------------------------------------------------------------

    def change(self, change: Callable[[Master], T]) -> T:
        """Carry out a change, and store the MasterState before anything is sent."""
        self.heard = True
        result = change(self.core)
        if self._save() or self.core.restless:
            self._obey()
        return result

    def state(self) -> State:
        """The state of the topology."""
        error = self.core.error
        state = self.core.state(self.clock.now())
        if self.core.error != error:
            self._save()
        return state

    # ---- helpers ---------------------------------------------------------------------------

    def _look(self) -> None:
        self._will_look = False
        self.change(lambda master: master.look(self.clock.now()))

    def _save(self) -> bool:
        self._saved_s = self._world.now_s
        book = self.core.book.to_bytes()
        changed = book != self._saved
        if changed:
            self._site.store.write(_BOOK, book)
            self._saved = book
        return changed

    def _obey(self) -> None:
        """Send the DesiredState to the workers, and carry out the orders of a rebalance."""
        if self._desired_state != self.core.desired_state:
            self._desired_state = self.core.desired_state
            for worker in self.core.lives:
                self._tell(worker, "desired_state", self._desired_state)
        orders = self.core.orders()
        for worker, leaving in orders.pack.items():
            self._tell(worker, "pack", self.core.book.moves + 1, leaving)
        for worker in orders.again:
            self._tell(worker, "again", self.core.book.moves)
        for worker in orders.create:
            self._machines.create(worker)
        for worker in orders.end:
            self._machines.end(worker)
            self.core.ended(worker)
        if orders.unload:
            self._site.transfer.clear()
            self.core.unloaded()
        self._save()
        if self.core.restless and not self._will_look:
            self._will_look = True
            self._world.after(self.clock.in_world_s(_LOOK_S), self.do, self._look)

    def _tell_lives(self, worker: int) -> None:
        self._tell(worker, "peers", self.core.lives, list(self.core.crash_reports.values()))

    def _tell(self, worker: int, what: str, *news: Any) -> None:
        self._site.network.call(self, worker, what, *news)
