"""A batch group of a partitioned spout, without any stages, with random faults between its steps.

Each task has a queue of commands, which it takes at its own pace. Commands get lost, tasks and
masters restart, former lives continue for a while, commits fail half way, and partitions appear,
vanish and move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from sunshower.clock import ManualClock
from sunshower.errors import BatchError
from sunshower.state.tree import MemoryForest, MemoryTree, Tree
from sunshower.topologies.components import Context
from sunshower.topologies.operators.port import Attempt
from sunshower.trident.declaration.declare import as_trident_spout
from sunshower.trident.spouts.bounds import Bounds, Room
from sunshower.trident.spouts.port import OpaquePartitionedSpout, PartitionedSpout
from tests.trident.rigs.emitting import PATH, CollectedRows

Row = tuple[str, int]
NAMES = [f"t@{number}" for number in range(5)]


def put(tree: Tree, path: str, value: bytes) -> None:
    """Write a node that may exist already; nothing else writes at the same time."""
    if tree.get(path) is None:
        tree.create(path, value)
    else:
        tree.set(path, value)


class Logs:
    """The source that all copies of the spout read: partitions that grow; only some are listed."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.length = dict.fromkeys(NAMES, 40)
        self.listed = set(NAMES[:3])

    def __deepcopy__(self, memo: Any) -> Logs:
        return self

    def change(self) -> None:
        name = self.chance.choice(NAMES)
        self.length[name] += self.chance.randint(0, 10)
        if self.chance.random() < 0.3:
            self.listed ^= {self.chance.choice(NAMES)}


class _Scripted:
    """Emits batches of a random size."""

    emits = ("partition", "number")

    def __init__(self, logs: Logs) -> None:
        self.logs = logs
        self.bounds = Bounds(records=20)

    def partitions(self) -> Sequence[str]:
        return [*self.logs.listed]

    def emit_new(self, partition: str, last: Any, room: Room) -> Any:
        first = last["end"] if last else 0
        end = min(first + self.logs.chance.randint(0, 4), self.logs.length[partition])
        room.emit([(partition, number) for number in range(first, end)])
        return {"first": first, "end": end}


class Transactional(_Scripted, PartitionedSpout):
    def emit_again(self, partition: str, metadata: Any, room: Room) -> None:
        numbers = range(metadata["first"], metadata["end"])
        room.emit([(partition, number) for number in numbers])


class Opaque(_Scripted, OpaquePartitionedSpout):
    pass


@dataclass
class Batch:
    """An attempt that is in progress."""

    attempt: Attempt
    metadata: Any
    shares: dict[int, list[Row]] = field(default_factory=dict)  # by task


class Group:
    """The group of a spout of the class `kind`, one of the two above."""

    def __init__(self, kind: type[Any], chance: Random) -> None:
        self.chance = chance
        self.logs = Logs(chance)
        self.spout = as_trident_spout(kind(self.logs))
        self.tree = MemoryTree(MemoryForest())
        self.stored: dict[int, Any] = {}  # the coordinator's metadata, in its store
        self.attempts: dict[int, int] = {}
        self.current, self.epoch = 1, 0
        self.committed: list[list[Row]] = []
        self.former_lives: list[tuple[Any, list[Batch]]] = []
        self.emitted: dict[tuple[int, str], set[tuple[int, ...]]] = {}
        self.queues: list[list[Batch]] = []
        self.restart_master()

    # ---- events ---------------------------------------------------------------------------------

    def restart_master(self) -> None:
        """Restart the master; half of the time all tasks too, in a new number."""
        self.epoch += 1
        self.active: dict[int, Batch] = {}
        self.coordinator = self.spout.coordinator(
            self.tree, f"{PATH}/coordinator", self._context("$mastercoord-g", 0, 1)
        )
        if self.epoch == 1 or self.chance.random() < 0.5:
            for index in range(len(self.queues)):
                self.die(index)
            self.tasks = self.chance.randint(1, 3)
            self.emitters = [self._emitter(index) for index in range(self.tasks)]
            self.queues = [[] for _ in range(self.tasks)]

    def begin(self) -> None:
        """Begin a batch, if fewer than four are active."""
        txid = self.current
        while txid in self.active:
            txid += 1
        if len(self.active) >= 4:
            return
        before = [stored_txid for stored_txid in self.stored if stored_txid < txid]
        previous = self.stored[max(before)] if before else None
        known = self.stored.get(txid)
        self.stored[txid] = self.coordinator.initialize(txid, previous, known)
        if self.chance.random() < 0.2 and not (known and not self.spout.commits):
            self.chance.shuffle(self.stored[txid]["partitions"])  # all may move to other tasks
        self.attempts[txid] = self.attempts.get(txid, -1) + 1
        batch = Batch(Attempt(txid, self.attempts[txid], self.epoch), self.stored[txid])
        self.active[txid] = batch
        for queue in self.queues:
            queue.append(batch)

    def take(self, index: int) -> None:
        """Let a task take its next command."""
        if self.queues[index]:
            self._emit(self.emitters[index], self.queues[index].pop(0), index)

    def lose(self, index: int) -> None:
        """Lose a command; its batch fails later."""
        if self.queues[index]:
            self.queues[index].pop(self.chance.randrange(len(self.queues[index])))

    def die(self, index: int) -> None:
        """Restart a task; its former life still runs, but its rows are ignored."""
        self.former_lives = [*self.former_lives, (self.emitters[index], self.queues[index])][-3:]
        self.emitters[index], self.queues[index] = self._emitter(index), []

    def run_former_life(self) -> None:
        """Let a former life execute a command from before the restart."""
        if not self.former_lives:
            return
        emitter, queue = self.chance.choice(self.former_lives)
        held = [*getattr(emitter, "_held", {}).values()]
        with suppress(BatchError):
            if queue and self.chance.random() < 0.5:
                batch = queue.pop(0)
                emitter.emit_batch(batch.attempt, batch.metadata, CollectedRows())
            elif held:
                emitter.commit(self.chance.choice(held).attempt)

    def fail(self, txid: int) -> None:
        """Fail a batch and those after it."""
        for later in [active_txid for active_txid in self.active if active_txid >= txid]:
            del self.active[later]

    def commit(self, faulty: bool = True) -> None:
        """Commit the next batch, if all tasks have emitted it; the commit may fail before any of
        them, or after the last."""
        batch = self.active.get(self.current)
        if batch is None or len(batch.shares) < self.tasks:
            return None
        fails_at = self.chance.randint(0, 3 * self.tasks) if faulty else -1
        for at, index in enumerate(self.chance.sample(range(self.tasks), self.tasks)):
            if at == fails_at or not self._commit(index, batch.attempt):
                return self.fail(self.current)
        if fails_at == self.tasks:
            return self.fail(self.current)
        self.committed.append([row for share in batch.shares.values() for row in share])
        del self.active[self.current]
        self.current += 1
        put(self.tree, f"{PATH}/coordinator/currtx", str(self.current).encode())
        for emitter in self.emitters:
            if not faulty or self.chance.random() < 0.7:
                emitter.success(batch.attempt)
        return None

    def finish(self) -> None:
        """Run batches without faults, until all rows are committed."""
        for _ in range(500):
            if sum(map(len, self.committed)) >= sum(self.logs.length.values()):
                return
            if all(batch.attempt.txid < self.current for batch in self.active.values()):
                self.begin()
            for index in range(self.tasks):
                while self.queues[index]:
                    self.take(index)
            before = self.current
            self.commit(faulty=False)
            if self.current == before:
                self.fail(self.current)

    # ---- helpers --------------------------------------------------------------------------------

    def _emit(self, emitter: Any, batch: Batch, index: int) -> None:
        if self.active.get(batch.attempt.txid) is not batch and self.chance.random() < 0.7:
            return  # mostly the task knows that the attempt is over
        taken = CollectedRows()
        try:
            emitter.emit_batch(batch.attempt, batch.metadata, taken)
        except BatchError:
            if self.active.get(batch.attempt.txid) is batch:
                self.fail(batch.attempt.txid)
            return
        batch.shares[index] = taken.rows
        for name in batch.metadata["partitions"][index :: self.tasks]:
            numbers = tuple(number for where, number in taken.rows if where == name)
            self.emitted.setdefault((batch.attempt.txid, name), set()).add(numbers)

    def _commit(self, index: int, attempt: Attempt) -> bool:
        try:
            if self.spout.commits:
                self.emitters[index].commit(attempt)
        except BatchError:
            return False
        return True

    def _emitter(self, index: int) -> Any:
        return self.spout.emitter(self.tree, f"{PATH}/user", self._context("s", index, self.tasks))

    def _context(self, component: str, index: int, tasks: int) -> Context:
        return Context("t", component, index, index, tasks, clock=ManualClock())


def faulty_group(kind: type[Any], chance: Random, steps: int) -> Group:
    """A group after `steps` random events, and an end without faults, with all partitions."""
    group = Group(kind, chance)
    for _ in range(steps):
        index = chance.randrange(group.tasks)
        match chance.randrange(20):
            case 0:
                group.logs.change()
            case 1:
                group.lose(index)
            case 2:
                group.die(index)
            case 3 if group.active:
                group.fail(chance.choice([*group.active]))
            case 4 if chance.random() < 0.2:
                group.restart_master()
            case 5 | 6 | 7:
                group.begin()
            case 8:
                group.run_former_life()
            case 9 | 10 | 11 | 12:
                group.commit()
            case _:
                group.take(index)
    group.logs.listed = {*NAMES}
    group.former_lives = []
    group.fail(group.current)
    group.finish()
    return group


def numbers_of(group: Group) -> Mapping[str, list[int]]:
    """The committed numbers of each partition, in order."""
    numbers: dict[str, list[int]] = {name: [] for name in NAMES}
    for rows in group.committed:
        for name, number in rows:
            numbers[name].append(number)
    return numbers
