"""The master of one topology: who is alive, in which life, where tasks are, and what is wished.

The states are drawn in lifecycle.py. A rebalance goes like this:

    come to rest ──nothing is pending, or the wait is over──▶ pack ──all have──▶ move ──▶ arrive

Packing ends the life of every worker: its tasks' luggage is in the store, or stays in the process.
To move is one write of the book: new places, and a floor that all new lives are above. Then every
worker says hello as if it had just started. So a master that dies at any point leaves a book that
says how far it has come, and a worker that dies is one that starts.

The master is never on the way of a tuple: workers talk to each other directly. When it dies they go
on; its successor reads the book and is told the rest by them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sunshower.runtime.book import Book
from sunshower.runtime.conditions import Conditions, ConditionTracker
from sunshower.runtime.havoc import Havoc, check_places
from sunshower.runtime.lifecycle import Command, Facts, KillReport, Lifecycle, State
from sunshower.runtime.lives import Lives
from sunshower.runtime.metrics import Counts, Snapshot, TaskStats, WorkerStats
from sunshower.runtime.obituary import Obituary
from sunshower.runtime.placement import placed, places_of, replan
from sunshower.runtime.plan import Layout, Plan
from sunshower.runtime.supervision import Standing
from sunshower.runtime.usercode import TaskError

_SETTLE_S = 1.0  # untracked records may still be on their way: wait until nothing changes


@dataclass(frozen=True)
class Wish:
    """What the spouts of a topology are to do, what is to disturb it, and how components stand."""

    active: bool = True  # emit at all
    draining: bool = False  # replays only
    havoc: Havoc = field(default_factory=Havoc)
    conditions: Conditions = field(default_factory=Conditions)


@dataclass(frozen=True)
class Welcome:
    """What a worker is told when it says hello."""

    life: int
    lives: dict[int, int]  # all workers that are known, and in which life each is
    wish: Wish = Wish()
    places: list[int] | None = None  # the worker of each task, if not that of the plan
    move: int = 0  # the rebalance whose luggage may be waiting; 0: none
    delay_s: float = 0.0  # before its tasks may open
    quarantined: dict[int, TaskError] = field(default_factory=dict)  # tasks that are not run; why
    positions: dict[int, tuple[int, int]] = field(default_factory=dict)  # its spout tasks →
    # records settled, and records drawn
    owed: dict[int, int] = field(default_factory=dict)  # its spout tasks → no record from this one
    # on was drawn; of those whose former life has left word of it
    suspects: dict[int, dict[int, int]] = field(default_factory=dict)  # its spout tasks → message →
    # deaths of their own process


@dataclass(frozen=True)
class Orders:
    """What the shell has to see to; said again until it is done."""

    pack: dict[int, list[int]] = field(default_factory=dict)  # worker → tasks that leave it
    again: list[int] = field(default_factory=list)  # workers that begin a new life in place
    create: list[int] = field(default_factory=list)  # workers whose process has to be there
    end: list[int] = field(default_factory=list)  # workers whose process is not needed any more
    unload: bool = False  # the luggage in the store is not needed any more


class Master:
    """Decides; whoever carries it keeps `book` in a store after each call that changes it.

    Whoever carries it also calls `look` while `restless`, and carries the `orders` out.
    """

    def __init__(self, plan: Plan, book: Book | None = None, now: float = 0.0) -> None:
        self.book = book or Book()
        self._submitted = plan
        self.plan = placed(plan, self.book.places)
        self._lifecycle = Lifecycle(plan.graph.id, self.book, now)
        self.obituaries: dict[int, Obituary] = {}  # worker → of its last life, if one was found
        self._lives = Lives(self.plan)
        self._stats: dict[int, WorkerStats] = {}
        self._packed: set[int] = set()
        self._unloaded = False
        self._flow: tuple[int, int] = (0, 0)
        self._flow_since_s = 0.0
        self._conditions = ConditionTracker(self.plan, self.book)
        self._ticks = any(c.tick_s is not None for c in plan.graph.components.values())
        self._done_since_s: float | None = None  # all spouts, of all workers that have told
        self._done_lives: dict[int, int] = {}  # in which all was done: what they tell later is late

    # ---- what is known ---------------------------------------------------------------------

    def state(self, now: float) -> State:
        """Where the topology stands."""
        facts, book = self._facts(now), self.book
        gone = [book.quarantined[s.id] for s in self.plan.spouts if s.id in book.quarantined]
        if gone and facts.done and not book.draining:  # more to emit, and nobody who does it
            self.broken(gone[0].story)
        return self._lifecycle.state(facts)

    @property
    def error(self) -> str | None:
        """Why the topology gave up, as of the last `state`."""
        return self.book.error

    @property
    def lives(self) -> dict[int, int]:
        """All workers that have said hello in the present places, and in which life each is."""
        return {worker: life for worker, life in self.book.lives.items() if life > self.book.floor}

    @property
    def wish(self) -> Wish:
        """What the workers are to do now. Everybody must be told when it changes."""
        book = self.book
        active = book.active and not book.next_places
        return Wish(active, book.draining, book.havoc, self._conditions.now)

    def snapshot(self, now: float) -> Snapshot:
        """The topology at this moment."""
        book, stats = self.book, dict(self._stats)
        state = self.state(now)
        return Snapshot(
            self.plan.graph.id,
            stats,
            book.restarts,
            dict(book.retired),
            state,
            dict(book.quarantined),
            book.untracked,
        )

    def report(self, now: float) -> KillReport:
        """What there is to say after a kill."""
        snapshot = self.snapshot(now)
        spouts = {spout.id: snapshot.component(spout.id) for spout in self.plan.graph.spouts}
        unsettled = sum(task.unsettled for task in snapshot.tasks())
        return KillReport(spouts, unsettled, self._lifecycle.waited_s(now))

    # ---- what workers tell -----------------------------------------------------------------

    def hello(self, worker: int, now: float, obituary: Obituary | None = None) -> Welcome:
        """A worker begins a life. Everybody must be told `lives`, and the obituary of its former
        life, if its successor has found one."""
        book = self.book
        owed = self._bury(worker, obituary)
        if worker in self.lives:
            book.restarts += 1
            book.quarantined |= self._lives.died(worker, now, self._stats.get(worker), obituary)
        book.lives[worker] = max(book.lives.get(worker, 0), book.floor) + 1
        self._packed.discard(worker)
        self._retire(worker)
        mine = [task.id for task in self.plan.tasks_on(worker)]
        return Welcome(
            book.lives[worker],
            self.lives,
            self.wish,
            book.places,
            book.moves,
            self._lives.began(worker, now),
            {id: book.quarantined[id] for id in mine if id in book.quarantined},
            {id: (book.positions.get(id, 0), book.drawn.get(id, 0)) for id in mine},
            {id: owed[id] for id in mine if id in owed},
            {id: dict(book.suspects[id]) for id in mine if id in book.suspects},
        )

    def hear(self, stats: WorkerStats, now: float) -> None:
        """A worker tells how it stands. What a former life of it has sent is ignored."""
        if stats.incarnation != self.lives.get(stats.worker):  # not of former places either
            return
        self._stats[stats.worker] = stats
        for task in stats.tasks:
            if task.health.standing is Standing.QUARANTINED and task.health.last:
                self.book.quarantined.setdefault(task.task, task.health.last[-1])
            self._keep_position(task)
        self._conditions.look(self._stats, now)
        tasks = [task for worker in self._stats.values() for task in worker.tasks]
        flow = (sum(t.counts.transferred for t in tasks), sum(t.counts.executed for t in tasks))
        if flow != self._flow:
            self._flow, self._flow_since_s = flow, now
        if not self._spouts_done():
            self._done_since_s = None
        elif self._done_since_s is None:
            self._done_since_s = now
        if self.restless:
            self.look(now)

    def packed(self, stats: WorkerStats, now: float) -> None:
        """A worker has ended its life for a rebalance; these were its last counters."""
        self.hear(stats, now)
        if self.book.packing and stats.incarnation == self.lives.get(stats.worker):
            self._packed.add(stats.worker)
        self.look(now)

    def broken(self, text: str) -> None:
        """A task has given up, and the topology with it. The first reason counts."""
        self.book.error = self.book.error or text

    # ---- what people ask; each raises LifecycleError where it is not possible ---------------

    def activate(self, active: bool, now: float) -> None:
        """Let the spouts emit, or let them rest."""
        self._lifecycle.allow(Command.ACTIVATE if active else Command.DEACTIVATE, self.state(now))
        self._lifecycle.activate(active)

    def drain(self, now: float) -> None:
        """No spout emits anything fresh from now on, in whatever life."""
        self._lifecycle.allow(Command.DRAIN, self.state(now))
        self._lifecycle.drain()

    def kill(self, wait_s: float | None, now: float) -> None:
        """Drain for `wait_s` at most (None: the message timeout), then end."""
        self._lifecycle.kill(self._wait_s(wait_s), now)
        self.look(now)

    def rebalance(
        self, workers: int | None, layout: Layout | None, wait_s: float | None, now: float
    ) -> None:
        """Share the tasks out among so many workers. See `replan` for what is refused."""
        self._lifecycle.allow(Command.REBALANCE, self.state(now))
        places = replan(self.plan, workers, layout)
        if places != places_of(self.plan):
            self._lifecycle.rebalance(places, self._wait_s(wait_s), now)

    def disturb(self, havoc: Havoc) -> None:
        """From now on this havoc, instead of what was; `Havoc()` heals. Possible in every state.

        Raises ExperimentError for what the topology has no place for.
        """
        check_places(havoc, self.plan)
        self.book.havoc = havoc

    # ---- what follows from it ---------------------------------------------------------------

    @property
    def restless(self) -> bool:
        """Whether something is under way that time, or `orders`, must bring on."""
        book = self.book
        kills = book.killing and not book.killed
        moves = book.moves and (self.lives != book.lives or not self._unloaded)
        return bool(kills or book.next_places or moves)

    def look(self, now: float) -> None:
        """Go on where a wait is over, or everybody has packed."""
        self._lifecycle.look(self._facts(now), now)
        if self.book.packing and self._packed >= set(self.plan.workers):
            self._lifecycle.move()
            self._packed, self._unloaded = set(), False
            self.plan = placed(self._submitted, self.book.places)
            self._lives = Lives(self.plan)
            self._conditions = ConditionTracker(self.plan, self.book)
            for worker in list(self._stats):  # into the book: who comes next may have to tell
                self._retire(worker)

    def orders(self) -> Orders:
        """What has to be done now for a rebalance."""
        book = self.book
        if book.packing and book.next_places:
            moving = zip(self.plan.tasks, book.next_places, strict=True)
            leaving = [task for task, place in moving if task.worker != place]
            unpacked = [worker for worker in self.plan.workers if worker not in self._packed]
            return Orders({w: [t.id for t in leaving if t.worker == w] for w in unpacked})
        if not book.moves:
            return Orders()
        unjoined = [worker for worker in self.plan.workers if worker not in self.lives]
        return Orders(
            again=[worker for worker in unjoined if worker in book.lives],
            create=[worker for worker in unjoined if worker not in book.lives],
            end=[worker for worker in book.lives if worker not in self.plan.workers],
            unload=self._arrived and not self._unloaded,
        )

    def ended(self, worker: int) -> None:
        """The process of a worker that is not needed any more is gone."""
        self.book.lives.pop(worker, None)
        self._retire(worker)

    def unloaded(self) -> None:
        """The luggage was taken out of the store."""
        self._unloaded = True

    # ---- how --------------------------------------------------------------------------------

    @property
    def _arrived(self) -> bool:
        return self._stats.keys() == set(self.plan.workers) <= self.lives.keys()

    def _facts(self, now: float) -> Facts:
        workers = self._stats.values()
        tasks = [task for worker in workers for task in worker.tasks]
        sent, executed = self._flow
        since_s = self._flow_since_s
        if self._ticks:  # which never end
            since_s = now if self._done_since_s is None else self._done_since_s
        still, arrived = sent == executed or now - since_s >= _SETTLE_S, self._arrived
        empty = arrived and still and all(worker.idle for worker in workers)
        at_rest = all(worker.at_rest for worker in workers)
        done = empty and self._spouts_done()
        if done and (self.plan.graph.config.tracked or now - since_s >= _SETTLE_S):
            self._done_lives = self.lives  # else what travels unseen may have made it look so
        return Facts(
            joined=arrived or set(self.plan.workers) <= self.lives.keys(),
            arrived=arrived,
            quiet=empty and at_rest and not any(task.counts.pending for task in tasks),
            done=done or (bool(self._done_lives) and self._done_lives == self.lives),
        )

    def _spouts_done(self) -> bool:
        spouts = {spout.id for spout in self.plan.spouts}
        tasks = [task for worker in self._stats.values() for task in worker.tasks]
        return all(task.done for task in tasks if task.task in spouts)

    def _keep_position(self, task: TaskStats) -> None:
        """A new life may tell less than a former one for a while."""
        for kept, told in ((self.book.positions, task.committed), (self.book.drawn, task.drawn)):
            if told > kept.get(task.task, 0):
                kept[task.task] = told
        suspects = self.book.suspects.get(task.task, {})
        for number in [number for number in suspects if number < task.committed]:
            del suspects[number]

    def _bury(self, worker: int, obituary: Obituary | None) -> dict[int, int]:
        """Count what the spouts of the dead process itself cannot: their tables are gone, too.
        Returns what each of its spout tasks owes, if this was its last life."""
        self.obituaries.pop(worker, None)
        if obituary is None or obituary.life != self.book.lives.get(worker):
            return {}
        for task, (drawn, _) in obituary.drawn.items():
            self.book.drawn[task] = max(drawn, self.book.drawn.get(task, 0))
        owed = {task: max(found) for task, found in obituary.drawn.items()}
        if not obituary.roots:
            return owed
        self.obituaries[worker] = obituary
        named = {s.id for s in self.plan.spouts if self.plan.component(s).level.keeps_numbers}
        for task, numbers in ((t, n) for t, n in obituary.numbers.items() if t in named):
            counts = self.book.suspects.setdefault(task, {})
            for number in numbers:
                counts[number] = counts.get(number, 0) + 1
        return owed

    def _retire(self, worker: int) -> None:
        """What a life that is over had done still counts."""
        last = self._stats.pop(worker, None)
        self.book.untracked = self.book.untracked or (last.untracked if last else None)
        for task in last.tasks if last else ():
            retired = self.book.retired.get(task.component, Counts())
            self.book.retired[task.component] = retired + task.counts.closed()

    def _wait_s(self, wait_s: float | None) -> float:
        return self.plan.graph.config.message_timeout_s if wait_s is None else wait_s
