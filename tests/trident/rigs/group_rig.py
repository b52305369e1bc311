"""A small batch group, made by hand: numbers, counted by key in an opaque state.

    numbers (emitters) ──by key──▶ middle (passes on) ──by key──▶ counts (writes late) ──▶ after

The state survives the simulated processes, as a database would, so a test can read all of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Self

from sunshower import Context, Topology
from sunshower.errors import StaleAttempt
from sunshower.records import Schema
from sunshower.runtime.transport.routing import task_index
from sunshower.state.tree import Tree
from sunshower.topologies.operators.generated_stages import Feed, StageNode
from sunshower.topologies.operators.port import Attempt, Emit, Operator
from sunshower.trident.coordination.transactional_log import TransactionalLog
from sunshower.trident.declaration.stage_builder import InMemory, assemble
from sunshower.trident.spouts.port import Rows, SpoutKind
from sunshower.trident.stages.plan import Group, Skip, Source, Stage, StageInput, StageOutput


class Row(NamedTuple):
    key: int
    number: int


ROW = Schema.of(Row)
KEYS = 5


class Shared:
    """An object that all tasks share, and that survives their restarts."""

    def __deepcopy__(self, memo: object) -> Self:
        return self


class Hook(Shared):
    """Called at each step; a test may raise there, or kill a process."""

    def __call__(self, step: str, attempt: Attempt, context: Context | None) -> None:
        """Do nothing; tests override it."""


@dataclass
class Numbers:
    """A transactional spout: the metadata of a batch are a range of at most `size` numbers.

    Each task of the emitter takes every parallelism-th number. The source ends after `total`.
    """

    total: int
    size: int
    hook: Hook = field(default_factory=Hook)
    emits: Any = Row
    kind: SpoutKind = SpoutKind.TRANSACTIONAL
    commits: bool = False
    parallelism_max: int | None = None

    def coordinator(self, store: Tree, path: str, context: Context) -> NumbersCoordinator:
        return NumbersCoordinator(self, context)

    def emitter(self, store: Tree, path: str, context: Context) -> NumbersEmitter:
        return NumbersEmitter(self, store, path, context)


class NumbersCoordinator:
    def __init__(self, spout: Numbers, context: Context) -> None:
        self.spout, self.context = spout, context

    def initialize(self, txid: int, previous: Any, current: Any) -> Any:
        self.spout.hook("before metadata", Attempt(txid, 0, 0), self.context)
        if current is not None:
            return current
        start = previous["end"] if previous else 0
        return {"start": start, "end": min(start + self.spout.size, self.spout.total)}

    def success(self, txid: int) -> None:
        self.spout.hook("success", Attempt(txid, 0, 0), self.context)

    def is_ready(self, txid: int) -> bool:
        return True

    def is_last(self, metadata: Any) -> bool:
        return bool(metadata["end"] >= self.spout.total)

    def close(self) -> None:
        pass


class NumbersEmitter:
    def __init__(self, spout: Numbers, tree: Tree, path: str, context: Context) -> None:
        self.spout, self.context = spout, context

    def emit_batch(self, attempt: Attempt, metadata: Any, rows: Rows) -> None:
        self.spout.hook("after metadata", attempt, self.context)
        mine = range(metadata["start"], metadata["end"])
        index, tasks = self.context.index, self.context.parallelism
        rows.emit([Row(n % KEYS, n) for n in mine if n % tasks == index])

    def commit(self, attempt: Attempt) -> None:
        pass

    def success(self, attempt: Attempt) -> None:
        self.spout.hook("success at an emitter", attempt, self.context)

    def close(self) -> None:
        pass

    def figures(self) -> Mapping[str, float]:
        return {}


class OpaqueNumbers(Numbers):
    """The same numbers, in batches whose size changes with the attempt; commits its positions."""

    def __init__(self, total: int, size: int, hook: Hook) -> None:
        super().__init__(total, size, hook, kind=SpoutKind.OPAQUE, commits=True)

    def coordinator(self, store: Tree, path: str, context: Context) -> OpaqueCoordinator:
        return OpaqueCoordinator(self, store, path, context)

    def emitter(self, store: Tree, path: str, context: Context) -> OpaqueEmitter:
        return OpaqueEmitter(self, store, path, context)


class OpaqueCoordinator(NumbersCoordinator):
    def __init__(self, spout: Numbers, tree: Tree, path: str, context: Context) -> None:
        super().__init__(spout, context)
        self.tree, self.user = tree, path.replace("/coordinator", "/user")

    def initialize(self, txid: int, previous: Any, current: Any) -> Any:
        self.spout.hook("before metadata", Attempt(txid, 0, 0), self.context)
        return {"of": txid}

    def is_last(self, metadata: Any) -> bool:
        names = self.tree.children(self.user)
        ends = [TransactionalLog(self.tree, f"{self.user}/{name}").last() for name in names]
        return bool(ends) and all(end is not None and end >= self.spout.total for end in ends)


class OpaqueEmitter(NumbersEmitter):
    """Task i emits the numbers n with n % tasks == i, and stores where its next batch begins."""

    def __init__(self, spout: Numbers, tree: Tree, path: str, context: Context) -> None:
        super().__init__(spout, tree, path, context)
        self.state = TransactionalLog(tree, f"{path}/{context.index}")
        self.cached: dict[int, int] = {}

    def emit_batch(self, attempt: Attempt, metadata: Any, rows: Rows) -> None:
        self.spout.hook("after metadata", attempt, self.context)
        self.state.remove(attempt.txid)
        lower = [txid for txid in self.cached if txid < attempt.txid]
        start = self.cached[max(lower)] if lower else self.state.last() or 0
        size = self.spout.size - attempt.attempt % 2
        index, tasks = self.context.index, self.context.parallelism
        end = min(start + size, self.spout.total)
        rows.emit([Row(n % KEYS, n) for n in range(start, end) if n % tasks == index])
        self.cached[attempt.txid] = end

    def commit(self, attempt: Attempt) -> None:
        self.spout.hook("before the commit of offsets", attempt, self.context)
        self.state.override(attempt.txid, self.cached[attempt.txid])
        self.spout.hook("after the commit of offsets", attempt, self.context)

    def success(self, attempt: Attempt) -> None:
        super().success(attempt)
        self.cached = {t: end for t, end in self.cached.items() if t >= attempt.txid}
        self.state.cleanup_before(attempt.txid)


Writer = Callable[[Attempt, Sequence[Row]], None]


class Database(Shared):
    """Opaque values by key: (txid, value, value before); each task writes all keys of its batch.

    What an earlier attempt of the same batch has written is undone, also for keys that this attempt
    does not have: their rows may come in the next batch.
    """

    moves = False  # whether the number of its tasks may change

    def __init__(self) -> None:
        self.values: dict[int, tuple[int, Counter[int], Counter[int]]] = {}
        self.keys: dict[int, set[int]] = {}  # task index → all keys that it has written
        self.order: list[tuple[int, int, int]] = []  # (task index, txid, attempt) as written

    def open(self, context: Context) -> Writer:
        """The function with which one life of a task writes."""
        return partial(self.write, context.index)

    def write(self, index: int, attempt: Attempt, rows: Sequence[Row]) -> None:
        """Write a batch; raise StaleAttempt if a later batch was written already."""
        counts: dict[int, Counter[int]] = {}
        for row in rows:
            counts.setdefault(row.key, Counter())[row.number] += 1
        mine = self.keys.setdefault(index, set())
        for key in mine - set(counts):
            counts[key] = Counter()
        mine |= set(counts)
        for key, numbers in counts.items():
            txid, now, before = self.values.get(key, (0, Counter[int](), Counter[int]()))
            if txid > attempt.txid:
                raise StaleAttempt(f"key {key} is of batch {txid}, and here comes {attempt.txid}")
            base = before if txid == attempt.txid else now
            if not numbers and txid != attempt.txid:
                continue
            self.values[key] = (attempt.txid, base + numbers, base)
        self.order.append((index, attempt.txid, attempt.attempt))

    @property
    def counts(self) -> Counter[int]:
        """Number → how often it was counted."""
        return sum((now for _, now, _ in self.values.values()), Counter[int]())


class Pass(Operator):
    """Emits its rows unchanged."""

    def __init__(self, hook: Hook, step: str = "in the middle") -> None:
        self.hook, self.step = hook, step

    def prepare(self, context: Context) -> None:
        self.context = context

    def start(self, attempt: Attempt) -> Attempt:
        return attempt

    def process(self, batch: Any, source: int, rows: Sequence[Any], emit: Emit) -> None:
        self.hook(self.step, batch, self.context)
        emit(rows)

    def finish(self, batch: Any, attempt: Attempt, emit: Emit) -> None:
        self.hook(f"{self.step}, finished", attempt, self.context)


class Write(Pass):
    """Writes the rows of a batch to the database in the commit phase, and emits how many."""

    commits = True

    def __init__(self, hook: Hook, database: Database) -> None:
        super().__init__(hook, "writing")
        self.database = database

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.write = self.database.open(context)

    def start(self, attempt: Attempt) -> Any:
        return []

    def process(self, batch: Any, source: int, rows: Sequence[Any], emit: Emit) -> None:
        batch.extend(rows)

    def finish(self, batch: Any, attempt: Attempt, emit: Emit) -> None:
        self.hook("before the commit", attempt, self.context)
        self.write(attempt, batch)
        emit([Row(self.context.index, len(batch))])
        self.hook("after the commit", attempt, self.context)


class Mod:
    """Sends rows to tasks by key."""

    def prepare(self, targets: int, index: int, senders: int) -> None:
        self.targets = targets

    def split(self, txid: int, rows: Sequence[Any]) -> list[tuple[int, Sequence[Any]]]:
        shares: dict[int, list[Any]] = {}
        for row in rows:
            shares.setdefault(row[0] % self.targets, []).append(row)
        return list(shares.items())


class ByKey(Mod):
    """Sends rows to the tasks that have their keys after a move."""

    def split(self, txid: int, rows: Sequence[Any]) -> list[tuple[int, Sequence[Any]]]:
        shares: dict[int, list[Any]] = {}
        for row in rows:
            shares.setdefault(task_index(row[0], self.targets), []).append(row)
        return list(shares.items())


class Tally(Shared):
    """How many written rows the last stage has received of each batch that it finished."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}


class Sum(Pass):
    """The last stage: it receives in the commit phase how many rows were written."""

    def __init__(self, hook: Hook, tally: Tally) -> None:
        super().__init__(hook, "after all")
        self.tally = tally

    def start(self, attempt: Attempt) -> Any:
        return []

    def process(self, batch: Any, source: int, rows: Sequence[Any], emit: Emit) -> None:
        batch.extend(rows)

    def finish(self, batch: Any, attempt: Attempt, emit: Emit) -> None:
        self.hook("after all, finished", attempt, self.context)
        self.tally.seen[attempt.txid] = sum(row.number for row in batch)


@dataclass
class Rig:
    """A topology with one group, and the results of the group."""

    spout: Any
    hook: Hook = field(default_factory=Hook)
    store: Callable[[], Tree] = field(default_factory=InMemory)
    max_batches: int = 1
    emitters: int = 2
    writers: int = 2
    skip: Skip = field(default_factory=Skip)
    interval_s: float = 0.0
    database: Database = field(default_factory=Database)
    tally: Tally = field(default_factory=Tally)

    def topology(self, name: str = "batches", **settings: Any) -> Topology:
        topology = Topology(name, **settings)
        assemble(topology, self.group())
        return topology

    def group(self) -> Group:
        return Group(
            "g",
            tuple(self.stages()),
            self.store,
            max_batches=self.max_batches,
            interval_s=self.interval_s,
            skip=self.skip,
        )

    def stages(self) -> Iterator[Stage]:
        yield Stage(
            "numbers",
            self.emitters,
            (StageNode(Pass(self.hook, "at the emitter")),),
            Source("numbers", self.spout, ROW, (Feed(0, 0),)),
            outputs=(StageOutput(0, "rows", "middle", ROW, Mod()),),
        )
        yield Stage(
            "middle",
            2,
            (StageNode(Pass(self.hook)),),
            inputs=(StageInput("numbers", "rows", ROW, (Feed(0, 0),)),),
            outputs=(
                StageOutput(0, "rows", "counts", ROW, ByKey() if self.database.moves else Mod()),
            ),
        )
        yield Stage(
            "counts",
            self.writers,
            (StageNode(Write(self.hook, self.database)),),
            inputs=(StageInput("middle", "rows", ROW, (Feed(0, 0),)),),
            outputs=(StageOutput(0, "written", "after", ROW, Mod()),),
        )
        yield Stage(
            "after",
            1,
            (StageNode(Sum(self.hook, self.tally)),),
            inputs=(StageInput("counts", "written", ROW, (Feed(0, 0),)),),
        )

    def check(self) -> None:
        """Assert that each number was counted once, and that commits came in order."""
        assert self.database.counts == Counter(range(self.spout.total))
        order = self.database.order
        txids = [txid for _, txid, _ in order]
        assert txids == sorted(txids), "batches were committed out of order"
        assert len(set(order)) == len(order), "an attempt was committed twice in one task"
        for index in {index for index, _, _ in order}:
            mine = [attempt for at, *attempt in order if at == index]
            assert mine == sorted(mine), "a later attempt was committed before an earlier one"
