"""A topology with everything in it, whose every attempt can be told apart, and the book of a run.

    numbers ──▶ split ──parts──▶ join (pairs, two anchors, any two roots) ──▶ store
                  └────odds────▶ rows (Arrow columns, 0 to 2 rows each) ────▶ store
    counter ──▶ keep ───────────────────────────────────────────────────────▶ store
    ticks (untracked) ──▶ join: whoever waits alone for a partner goes on without

Each number is emitted by a manual spout that replays by itself and puts its task, its life and the
attempt into the record. So for each tree the leaves are known that must be stored before its ack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa

from sunshower import (
    BatchBolt,
    Bolt,
    Collector,
    Config,
    Context,
    Derived,
    Failure,
    OnStream,
    Spout,
    SpoutCollector,
    Topology,
    Tuple,
)
from sunshower.clock import ManualClock
from sunshower.topologies.graph import Graph


class Number(NamedTuple):
    task: int
    life: int
    n: int
    attempt: int


class Part(NamedTuple):
    key: int
    of: tuple[int, ...]  # the Number
    i: int


class Odd(NamedTuple):
    n: int
    of: tuple[int, ...]
    i: int


class Pair(NamedTuple):
    left: tuple[Any, ...]
    right: tuple[Any, ...] | None


class Count(NamedTuple):
    n: int


class Tick(NamedTuple):
    at_s: float


def leaves(number: Number) -> set[str]:
    """What must be stored of a number."""
    parts = {f"part {i}" for i in range(parts_of(number.n))}
    return parts | {f"odd {i}" for i in range(number.n % 2 * (number.n % 3))}


def parts_of(n: int) -> int:
    return n // 2 % 4  # n and its neighbour have the same number


class MasterState:
    """What happened in a run; tasks share it however often they are copied."""

    def __init__(self, numbers: int, clock: ManualClock) -> None:
        self.numbers = numbers
        self.clock = clock
        self.lives: Counter[int] = Counter()
        self.emitted: set[Number] = set()
        self.stored: Counter[tuple[Any, str]] = Counter()
        self.acked: set[Number] = set()
        self.counted: set[int] = set()
        self.failures: list[tuple[float, Failure]] = []  # when, and why
        self.mistakes: list[str] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    @property
    def complete(self) -> bool:
        return {number.n for number in self.acked} == set(range(self.numbers))

    def store(self, of: Any, leaf: str) -> None:
        self.stored[of, leaf] += 1

    def fail(self, failure: Failure) -> None:
        self.failures.append((self.clock.now(), failure))

    def ack(self, number: Number) -> None:
        missing = [leaf for leaf in leaves(number) if not self.stored[number, leaf]]
        if missing:
            self.mistakes.append(f"{number} was acked before {missing} were stored")
        if number in self.acked:
            self.mistakes.append(f"{number} was acked twice")
        self.acked.add(number)


class Numbers(Spout[Number]):
    """All numbers, shared out among the tasks; replays what fails as another attempt.

    A new life leaves out what a former one has heard an ack for, as a source with offsets would.
    """

    replay = False

    def __init__(self, book: MasterState) -> None:
        self.book = book

    def open(self, context: Context) -> None:
        self.book.lives[context.task] += 1
        self.me = (context.task, self.book.lives[context.task])
        mine = range(self.book.numbers)[context.index :: context.parallelism]
        done = {number.n for number in self.book.acked}
        self.left = [(n, 1) for n in mine if n not in done]
        self.open_ids: set[Number] = set()

    def next_tuple(self, out: SpoutCollector[Number]) -> None:
        if self.left:
            number = Number(*self.me, *self.left.pop(0))
            self.open_ids.add(number)
            self.book.emitted.add(number)
            out.emit(number, number)
        elif not self.open_ids:
            out.finish()

    def ack(self, message_id: Number) -> None:
        self._settle(message_id)
        self.book.ack(message_id)

    def fail(self, message_id: Number, failure: Failure) -> None:
        self._settle(message_id)
        self.book.fail(failure)
        self.left.append((message_id.n, message_id.attempt + 1))

    def snapshot(self) -> Any:
        return self.left, self.open_ids

    def restore(self, state: Any) -> None:
        """The process may die, and its successor restore the same again: less what is acked."""
        left, self.open_ids = state
        done = {number.n for number in self.book.acked}
        self.left = [(n, attempt) for n, attempt in left if n not in done]

    def _settle(self, number: Number) -> None:
        if number not in self.open_ids:
            self.book.mistakes.append(f"{number} was not open in life {self.me}")
        self.open_ids.discard(number)


class Counts(Spout[Count]):
    """The simple level: the framework replays."""

    def __init__(self, book: MasterState) -> None:
        self.book = book

    def records(self) -> Iterator[Count]:
        return map(Count, range(self.book.numbers))

    def ack(self, message_id: int) -> None:
        if not self.book.stored[message_id, "count"]:
            self.book.mistakes.append(f"count {message_id} was acked before it was stored")
        self.book.counted.add(message_id)

    def fail(self, message_id: int, failure: Failure) -> None:
        self.book.fail(failure)


class Ticks(Spout[Tick]):
    """Now and then an untracked tick, until all numbers are acked."""

    last_s = 0.0

    def snapshot(self) -> float:
        return self.last_s

    def restore(self, state: float) -> None:
        self.last_s = state

    def __init__(self, book: MasterState) -> None:
        self.book = book

    def next_tuple(self, out: SpoutCollector[Tick]) -> None:
        if self.book.complete:
            out.finish()
        elif self.book.clock.now() >= self.last_s + 0.5:
            self.last_s = self.book.clock.now()
            out.emit(Tick(self.last_s))


class Forgetful:
    """What it holds belongs to trees that are given up when it moves."""

    def snapshot(self) -> None: ...

    def restore(self, state: None) -> None: ...


class Split(Forgetful, Bolt[Number, Part]):
    streams: ClassVar[dict[str, type[Odd]]] = {"odds": Odd}

    def process(self, record: Number) -> Iterator[Part | OnStream]:
        for i in range(parts_of(record.n)):
            yield Part(record.n // 2, record, i)
        if record.n % 2:
            yield OnStream("odds", Odd(record.n, record, 0))


class Join(Forgetful, Bolt[Any, Pair]):
    """Pairs whatever two parts come one after the other; some parts anchor twice."""

    waiting: Tuple[Part] | None = None

    def execute(self, tuple: Tuple[Any], out: Collector[Pair]) -> None:
        if isinstance(tuple.record, Tick):
            out.ack(tuple)
            if self.waiting:
                self._emit(out, [self.waiting])
                self.waiting = None
        elif self.waiting is None:
            self.waiting = tuple
        else:
            self._emit(out, [self.waiting, tuple])
            self.waiting = None

    def _emit(self, out: Collector[Pair], parts: list[Tuple[Part]]) -> None:
        left, right = [(t.record.of, t.record.i) for t in parts] + [None] * (2 - len(parts))
        twice = parts[:1] if parts[0].record.i == 2 else []
        out.emit(Pair(left, right), anchors=parts + twice)
        for part in parts:
            out.ack(part)


class Rows(BatchBolt[Odd, Odd]):
    """Each number n becomes n % 3 rows."""

    def snapshot(self) -> None: ...

    def restore(self, state: None) -> None: ...

    def process(self, table: pa.Table) -> Derived:
        counts = np.array(table["n"]) % 3
        parents = np.repeat(np.arange(len(table)), counts)
        rows = table.take(parents)
        places = [i for count in counts.tolist() for i in range(count)]
        return Derived(rows.set_column(2, "i", pa.array(places, pa.int64())), parents)


def keep(count: Count) -> list[Count]:
    return [count]


class Store(Forgetful, Bolt[Any, None]):
    def __init__(self, book: MasterState) -> None:
        self.book = book

    def process(self, record: Any) -> None:
        match record:
            case Pair():
                for of, i in filter(None, record):
                    self.book.store(Number(*of), f"part {i}")
            case Odd():
                self.book.store(Number(*record.of), f"odd {record.i}")
            case Count():
                self.book.store(record.n, "count")


def everything(book: MasterState, **settings: Any) -> Graph:
    """The topology in the picture above."""
    config = Config(message_timeout_s=10_000, idle_poll_s=0.5, spout_pending=16, workers=3)
    topology = Topology("everything", config=config, **settings)
    numbers = topology.spout("numbers", Numbers(book), parallelism=2)
    ticks = topology.spout("ticks", Ticks(book))
    counter = topology.spout("counter", Counts(book))
    parts = numbers.shuffle().bolt("split", Split, parallelism=2)
    pairs = topology.bolt("join", Join, [parts.fields("key"), ticks.all()], parallelism=2)
    rows = parts.stream("odds").partial_key("n").bolt("rows", Rows(), parallelism=2)
    kept = counter.local_or_shuffle().bolt("keep", keep, parallelism=2)
    inputs = [pairs.shuffle(), rows.none(), kept.global_()]
    topology.bolt("store", Store(book), inputs, parallelism=2)
    return topology.graph()
