"""The master of one topology: who is alive, in which life, and whether all is done.

    STARTING ──all workers said hello──▶ RUNNING ──all is done──▶ FINISHED
        └───────────────┬───────────────────┘
                        └──a tuple is given up, or all is done but a spout is quarantined──▶ FAILED

It is never on the way of a tuple: workers talk to each other directly. When it dies they go on;
its successor reads the book and is told the rest by them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from sunshower.runtime.book import Book
from sunshower.runtime.lives import Lives
from sunshower.runtime.metrics import Counts, Snapshot, TaskStats, WorkerStats
from sunshower.runtime.obituary import Obituary
from sunshower.runtime.plan import Plan
from sunshower.runtime.supervision import Standing
from sunshower.runtime.usercode import TaskError

_SETTLE_S = 1.0  # untracked records may still be on their way: wait until nothing changes


class State(StrEnum):
    """Where a topology stands."""

    STARTING = "starting"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True)
class Welcome:
    """What a worker is told when it says hello."""

    life: int
    lives: dict[int, int]  # all workers that are known, and in which life each is
    draining: bool  # spouts emit nothing new
    delay_s: float = 0.0  # before its tasks may open
    quarantined: dict[int, TaskError] = field(default_factory=dict)  # tasks that are not run; why
    positions: dict[int, tuple[int, int]] = field(default_factory=dict)  # its spout tasks →
    # records settled, and records drawn
    suspects: dict[int, dict[int, int]] = field(default_factory=dict)  # its spout tasks → message →
    # deaths of their own process


class Master:
    """Decides; whoever carries it keeps `book` in a store after each call that changes it."""

    def __init__(self, plan: Plan, book: Book | None = None) -> None:
        self.book = book or Book()
        self._plan = plan
        self._lives = Lives(plan)
        self._stats: dict[int, WorkerStats] = {}
        self.obituaries: dict[int, Obituary] = {}  # worker → of its last life, if one was found
        self._flow: tuple[int, int] = (0, 0)
        self._flow_since_s = 0.0
        self._ticks = any(c.tick_s is not None for c in plan.graph.components.values())
        self._done_since_s: float | None = None  # all spouts, of all workers that have told

    def state(self, now: float) -> State:
        """Where the topology stands."""
        if self.book.error is not None:
            return State.FAILED
        if len(self.book.lives) < len(self._plan.workers):
            return State.STARTING
        if not self._all_done(now):
            return State.RUNNING
        for spout in self._plan.spouts:  # there is more to emit, and nobody who does it
            if spout.id in self.book.quarantined and not self.book.draining:
                self.broken(self.book.quarantined[spout.id].story)
                return State.FAILED
        return State.FINISHED

    @property
    def error(self) -> str | None:
        """Why the topology gave up, as of the last `state`."""
        return self.book.error

    @property
    def lives(self) -> dict[int, int]:
        """All workers that are known, and in which life each is."""
        return dict(self.book.lives)

    def hello(self, worker: int, now: float, obituary: Obituary | None = None) -> Welcome:
        """A worker has started, for the first time or again. Everybody must be told `lives`, and
        the obituary of its former life, if its successor has found one."""
        book = self.book
        self._bury(worker, obituary)
        last = self._stats.pop(worker, None)
        if worker in book.lives:
            book.quarantined |= self._lives.died(worker, now, last, obituary)
        book.lives[worker] = book.lives.get(worker, 0) + 1
        for task in last.tasks if last else ():
            retired = book.retired.get(task.component, Counts())
            book.retired[task.component] = retired + task.counts.closed()
        mine = [task.id for task in self._plan.tasks_on(worker)]
        return Welcome(
            book.lives[worker],
            self.lives,
            book.draining,
            self._lives.began(worker, now),
            {id: book.quarantined[id] for id in mine if id in book.quarantined},
            {id: (book.positions.get(id, 0), book.drawn.get(id, 0)) for id in mine},
            {id: dict(book.suspects[id]) for id in mine if id in book.suspects},
        )

    def drain(self) -> None:
        """No spout emits anything new from now on, in whatever life. Everybody must be told."""
        self.book.draining = True

    def hear(self, stats: WorkerStats, now: float) -> None:
        """A worker tells how it stands. What a former life of it has sent is ignored."""
        if stats.incarnation != self.book.lives.get(stats.worker):
            return
        self._stats[stats.worker] = stats
        for task in stats.tasks:
            if task.health.standing is Standing.QUARANTINED and task.health.last:
                self.book.quarantined.setdefault(task.task, task.health.last[-1])
            self._keep_position(task)
        tasks = [task for worker in self._stats.values() for task in worker.tasks]
        flow = (sum(t.counts.transferred for t in tasks), sum(t.counts.executed for t in tasks))
        if flow != self._flow:
            self._flow, self._flow_since_s = flow, now
        if not self._spouts_done():
            self._done_since_s = None
        elif self._done_since_s is None:
            self._done_since_s = now

    def broken(self, text: str) -> None:
        """A task has given up, and the topology with it. The first reason counts."""
        self.book.error = self.book.error or text

    def snapshot(self, now: float) -> Snapshot:
        """The topology at this moment."""
        book = self.book
        restarts = sum(book.lives.values()) - len(book.lives)
        return Snapshot(
            self._plan.graph.id,
            dict(self._stats),
            restarts,
            dict(book.retired),
            self.state(now),
            dict(book.quarantined),
        )

    def _keep_position(self, task: TaskStats) -> None:
        """A new life may tell less than a former one for a while."""
        for kept, told in ((self.book.positions, task.committed), (self.book.drawn, task.drawn)):
            if told > kept.get(task.task, 0):
                kept[task.task] = told

        suspects = self.book.suspects.get(task.task, {})
        for number in [number for number in suspects if number < task.committed]:
            del suspects[number]

    def _bury(self, worker: int, obituary: Obituary | None) -> None:
        """Count what the spouts of the dead process itself cannot: their tables are gone, too."""
        self.obituaries.pop(worker, None)
        if obituary is None or obituary.life != self.book.lives.get(worker) or not obituary.roots:
            return
        self.obituaries[worker] = obituary
        for task, numbers in obituary.numbers.items():
            counts = self.book.suspects.setdefault(task, {})
            for number in numbers:
                counts[number] = counts.get(number, 0) + 1

    def _all_done(self, now: float) -> bool:
        if set(self._stats) != set(self._plan.workers):
            return False
        if self._done_since_s is None or not all(w.idle for w in self._stats.values()):
            return False
        sent, executed = self._flow
        quiet_since_s = self._done_since_s if self._ticks else self._flow_since_s  # ticks never end
        return sent == executed or now - quiet_since_s >= _SETTLE_S

    def _spouts_done(self) -> bool:
        spouts = {spout.id for spout in self._plan.spouts}
        tasks = [task for worker in self._stats.values() for task in worker.tasks]
        return all(task.done for task in tasks if task.task in spouts)
