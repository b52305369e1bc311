"""The network of harness.py with its master at work: wishes, rebalances, and its own death."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from sunshower.runtime.control.crash_report import CrashReport
from sunshower.runtime.control.lifecycle import State
from sunshower.runtime.control.master import Master, Welcome
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.control.task_transfer import TaskTransfer
from sunshower.runtime.plan import Task
from sunshower.runtime.worker import Worker
from tests.runtime.harness import Network, Node

_LOOK_S = 0.1


class Steered(Network):
    """It does what the shells of the master and of the workers do; every order may come twice."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.store: dict[tuple[int, int], bytes] = {}  # (move, task) → luggage
        self._desired_state: Any = None
        self._moves: dict[int, int] = {}  # worker → the rebalance that its core knows of
        super().__init__(*args, **settings)

    @property
    def state(self) -> State:
        return self.master.state(self.clock.now())

    def steer(self, what: Callable[[Master], Any]) -> None:
        """Somebody asks the master for something."""
        what(self.master)
        self._look()

    def kill_master(self) -> None:
        """Its successor knows the book, and is told the rest when workers work."""
        book = MasterState.from_bytes(self.master.book.to_bytes())
        self.master = Master(self.plan, book, self.clock.now())
        self._desired_state = None
        self._look()

    @property
    def finished(self) -> bool:
        return super().finished and not self.master.restless

    def _look(self) -> None:
        now = self.clock.now()
        self.master.look(now)
        orders = self.master.orders()
        for worker, leaving in orders.pack.items():
            self._post(worker, self._pack, self.master.book.moves + 1, leaving)
        for worker in orders.again:
            self._post(worker, self._again, self.master.book.moves)
        for worker in orders.create:
            if worker not in self._down:
                self._start(worker)
        for worker in orders.end:
            self.nodes.pop(worker, None)
            self._down.pop(worker, None)
            self.master.ended(worker)
        if orders.unload:
            self.store.clear()
            self.master.unloaded()
        if self._desired_state != self.master.desired_state:
            self._desired_state = self.master.desired_state
            for node in self.nodes.values():
                node.post(partial(self._obey, node))
        self.alarms = [now + _LOOK_S] if self.master.restless else []

    def _post(self, worker: int, what: Callable[..., None], *arguments: Any) -> None:
        if worker in self.nodes:
            self.nodes[worker].post(partial(what, self.nodes[worker], *arguments))

    def _possible(self) -> Iterator[Callable[[], None]]:
        yield from super()._possible()
        if self.alarms and self.alarms[0] <= self.clock.now():
            yield self._look

    def _work(self, node: Node) -> None:
        super()._work(node)
        self.master.hear(node.core.stats(), self.clock.now())

    def _begin(
        self, worker: int, crash_report: CrashReport | None, transfer: dict[int, TaskTransfer]
    ) -> Worker:
        core = super()._begin(worker, crash_report, transfer)
        self._moves[worker] = self.master.book.moves
        return core

    def _fetch(
        self, tasks: list[Task], welcome: Welcome, transfer: dict[int, TaskTransfer]
    ) -> None:
        for task in tasks:
            if task.id not in transfer and (welcome.move, task.id) in self.store:
                transfer[task.id] = pickle.loads(self.store[welcome.move, task.id])

    def _obey(self, node: Node) -> None:
        node.core.desired_state(self.master.desired_state)

    def _pack(self, node: Node, move: int, leaving: list[int]) -> None:
        if self._moves[node.core.worker] >= move:
            return
        for task, transfer in node.core.pack(leaving).items():
            if task in leaving:
                self.store.setdefault((move, task), pickle.dumps(transfer))
        self.master.packed(node.core.stats(), self.clock.now())

    def _again(self, node: Node, move: int) -> None:
        worker = node.core.worker
        if self._moves[worker] >= move:
            return
        packed = node.core.pack(())
        mine = {task.id for task in self.master.plan.tasks_on(worker)}
        transfer = {task: own for task, own in packed.items() if task in mine}
        node.core = self._begin(worker, None, transfer)
