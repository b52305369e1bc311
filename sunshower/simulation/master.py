"""The simulated process around the master: what `actors/master.py` is on Ray."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from sunshower.runtime.book import Book
from sunshower.runtime.lifecycle import State
from sunshower.runtime.master import Master, Welcome, Wish
from sunshower.runtime.metrics import WorkerStats
from sunshower.runtime.obituary import Obituary
from sunshower.simulation.network import MASTER, Process
from sunshower.simulation.site import Site

T = TypeVar("T")
_BOOK = "book"
_SAVE_S = 1.0  # how often what workers tell is kept
_LOOK_S = 0.1  # how often, while a kill or a rebalance is under way


class Machines(Protocol):
    """Who starts and ends processes."""

    def create(self, worker: int) -> None: ...
    def end(self, worker: int) -> None: ...


class SimMaster(Process):
    """One life of the master. The book is in the store, as bytes."""

    def __init__(self, site: Site, node: str, machines: Machines, *, active: bool) -> None:
        super().__init__(site.world, site.conditions, MASTER, node)
        self._site = site
        self._machines = machines
        book = site.store.read(_BOOK)
        found = Book.from_bytes(book) if book else Book(active=active)
        self.core = Master(site.plan, found, self.clock.now())
        self.heard = True  # something, since somebody has last looked
        self._saved = book
        self._saved_s = self._world.now_s
        self._wish: Wish | None = None  # that everybody was told
        self._will_look = False
        for worker in self.core.lives:  # this is not the first master: what has it missed?
            self._tell(worker, "report")
            self._tell_lives(worker)  # its predecessor may have died over it
        self._obey()

    # ---- called from afar ------------------------------------------------------------------

    def hello(
        self,
        caller: Process,
        welcomed: Callable[[Welcome | None], None],
        obituary: Obituary | None,
    ) -> None:
        """A worker has started, and is told what it has to know."""
        worker, now = caller.address, self.clock.now()
        welcome: Welcome = self.change(lambda master: master.hello(worker, now, obituary))
        for other in welcome.lives:
            if other != worker:
                self._tell_lives(other)
        self._site.network.answer(self, caller, welcomed, welcome)

    def hear(self, stats: WorkerStats) -> None:
        """A worker tells how it stands."""
        self.heard = True
        self.core.hear(stats, self.clock.now())
        if self.core.restless or self._wish != self.core.wish:
            self._obey()
        elif self._world.now_s - self._saved_s >= _SAVE_S:  # positions: older ones cost repetitions
            self._save()

    def packed(self, stats: WorkerStats) -> None:
        """A worker has ended its life for a rebalance."""
        self.change(lambda master: master.packed(stats, self.clock.now()))

    def broken(self, text: str) -> None:
        """A task has given up."""
        self.change(lambda master: master.broken(text))

    # ---- asked by the run ------------------------------------------------------------------

    def change(self, change: Callable[[Master], T]) -> T:
        """Carry out a change, and keep the book before anybody hears of it."""
        self.heard = True
        result = change(self.core)
        if self._save() or self.core.restless:
            self._obey()
        return result

    def state(self) -> State:
        """Where the topology stands."""
        error = self.core.error
        state = self.core.state(self.clock.now())
        if self.core.error != error:
            self._save()
        return state

    # ---- how -------------------------------------------------------------------------------

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
        """Tell the workers what is wished, and carry out what a rebalance needs now."""
        if self._wish != self.core.wish:
            self._wish = self.core.wish
            for worker in self.core.lives:
                self._tell(worker, "wish", self._wish)
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
            self._site.luggage.clear()
            self.core.unloaded()
        self._save()
        if self.core.restless and not self._will_look:
            self._will_look = True
            self._world.after(self.clock.in_world_s(_LOOK_S), self.do, self._look)

    def _tell_lives(self, worker: int) -> None:
        self._tell(worker, "peers", self.core.lives, list(self.core.obituaries.values()))

    def _tell(self, worker: int, what: str, *news: Any) -> None:
        self._site.network.call(self, worker, what, *news)
