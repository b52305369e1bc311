"""Tests of exceptions that are no Exception: whatever user code raises, wherever it is called."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Message

from sunshower import (
    Bolt,
    CombinerAggregator,
    Context,
    Derived,
    KeyState,
    LogSpout,
    Polled,
    Records,
    Retry,
    Spout,
    Topology,
    batch,
    count,
    reduce,
    run_inline,
    tumbling,
)
from sunshower.connectors.file_formats import json_records
from sunshower.errors import TopologyFailed, UnreadableRecord
from sunshower.experiments.runner.interrupts import Interrupts
from sunshower.kafka.consuming.decoding import MessageBatch, Received, Translator, Undecodable
from sunshower.kafka.formats import Bytes
from sunshower.record_reader import json_reader
from sunshower.simulation import SimCluster
from sunshower.state import MemoryState
from sunshower.trident import FixedBatchSpout, InMemory, PartitionedSpout, Skip, batches
from sunshower.trident import Operator as BatchOperator
from tests.runtime.rig import Number

TOTAL = 14


class Panic(BaseException):
    """As the PanicException of an extension in Rust."""


# number → what user code raises for it, or when it is called for this time
ERRORS: dict[int, Callable[[], BaseException]] = {
    3: asyncio.CancelledError,
    4: GeneratorExit,
    5: KeyboardInterrupt,
    6: partial(SystemExit, 3),
    7: partial(Panic, "called `Option::unwrap()` on a `None` value"),
    8: partial(BaseExceptionGroup, "several", [KeyboardInterrupt()]),
}
NAMES = {n: type(make()).__name__ for n, make in ERRORS.items()}


@dataclass(frozen=True)
class Checked:
    n: int

    def __post_init__(self) -> None:
        raises(self.n)


class Raised:
    """Which errors have been raised by now, if each is raised once."""

    once = False
    numbers: ClassVar[set[int]] = set()
    next: set[int]


@pytest.fixture(autouse=True)
def nothing_raised() -> None:
    Raised.once = False
    Raised.numbers.clear()


def raises(n: int) -> None:
    """Raise for a bad number."""
    if n in ERRORS and not (Raised.once and n in Raised.numbers):
        Raised.numbers.add(n)
        raise ERRORS[n]()  # noqa: RSE102 (it may be a function)


def raises_next() -> None:
    """Raise what has not been raised yet."""
    for n in sorted(Raised.next - Raised.numbers):
        raises(n)


NUMBERS = [Number(n) for n in range(TOTAL)]


# ---- code that processes a record: this record fails, and no other ------------------------------


def mapped(n: Number) -> Number:
    raises(n.n)
    return n


def kept(n: Number) -> bool:
    raises(n.n)
    return True


def twice(n: Number) -> Iterator[Number]:
    yield n
    raises(n.n)
    yield n


async def awaited(n: Number) -> Number:
    await asyncio.sleep(0.01)
    raises(n.n)
    return n


async def at_once(n: Number) -> Number:
    raises(n.n)
    return n


async def generated(n: Number) -> AsyncIterator[Number]:
    yield n
    await asyncio.sleep(0.01)
    raises(n.n)


def same(n: Number) -> Number:
    return n


def pair(n: Number) -> Iterator[Number]:
    yield Number(n.n)
    yield Number(n.n + TOTAL)


def end(n: Number) -> None:
    pass


def sink(n: Number) -> None:
    raises(n.n)


async def async_sink(n: Number) -> None:
    await asyncio.sleep(0.01)
    raises(n.n)


def stated(n: Number, state: KeyState[int]) -> None:
    raises(n.n)
    state.value = n.n


def timed(n: Number, state: KeyState[int]) -> None:
    raises(n.n)
    state.value, state.timer = n.n, state.time + 1


def on_timer(key: int, state: KeyState[int]) -> Iterator[Number]:
    yield Number(state.value or 0)


@batch
def table_of(table: pa.Table) -> Derived:
    for n in table["n"].to_pylist():
        raises(n)
    return Derived(table, range(len(table)))


def checked(n: Number) -> Checked:
    return Checked(n.n)


class Processes(Bolt[Number, Number]):
    emits = Number

    def process(self, record: Number) -> Iterator[Number]:
        raises(record.n)
        yield record


class Executes(Bolt[Number, Number]):
    emits = Number

    def execute(self, tuple: Any, out: Any) -> None:
        raises(tuple.record.n)
        out.emit(tuple.record, tuple)
        out.ack(tuple)


class Chooses:
    def prepare(self, targets: Sequence[int]) -> None:
        self.targets = targets

    def choose(self, record: Any) -> Sequence[int]:
        raises(record.n)
        return self.targets


class Largest(CombinerAggregator[Number, int]):
    def init(self, record: Number) -> int:
        raises(record.n)
        return record.n

    def combine(self, first: int, second: int) -> int:
        return max(first, second)

    def zero(self) -> int:
        return 0


def added(total: int, n: Number) -> int:
    raises(n.n)
    return total + n.n


FOR_A_RECORD: dict[str, Callable[[Any], Any]] = {
    "map": lambda numbers: numbers.map(mapped),
    "filter": lambda numbers: numbers.filter(kept),
    "flat_map": lambda numbers: numbers.flat_map(twice),
    "peek": lambda numbers: numbers.peek(sink),
    "async map": lambda numbers: numbers.map(awaited),
    "async map at once": lambda numbers: numbers.map(at_once),
    "two async maps": lambda numbers: numbers.map(awaited).map(at_once),
    "async calls for several rows": lambda numbers: numbers.flat_map(pair).map(awaited),
    "async generator": lambda numbers: numbers.flat_map(generated),
    "sink": lambda numbers: numbers.shuffle().bolt("sink", sink),
    "async sink": lambda numbers: numbers.shuffle().bolt("sink", async_sink),
    "process": lambda numbers: numbers.shuffle().bolt("bolt", Processes),
    "execute": lambda numbers: numbers.shuffle().bolt("bolt", Executes),
    "table": lambda numbers: numbers.shuffle().bolt("bolt", table_of, fields=Number),
    "record": lambda numbers: numbers.map(checked),
    "grouping": lambda numbers: numbers.map(same).custom(Chooses()).bolt("end", end),
    "aggregator": lambda numbers: numbers.group_by("n").aggregate(Largest()),
    "keyed state": lambda numbers: numbers.group_by("n").process(stated),
    "timers": lambda numbers: numbers.group_by("n").process(
        timed, on_timer=on_timer, event_time="n"
    ),
    "reducer": lambda numbers: numbers.aggregate(reduce(added, 0)),
    "window": lambda numbers: numbers.group_by("n").window(
        tumbling(seconds=5, field="n"), Largest()
    ),
}


# ---- other code: the task goes on, and every record is processed --------------------------------


class Listens(Spout[Number]):
    emits = Number

    def __init__(self, place: str) -> None:
        self.place = place

    def at(self, place: str) -> None:
        if place == self.place:
            raises_next()

    def open(self, context: Context) -> None:
        self.at("open")

    def activate(self) -> None:
        self.at("activate")

    def ack(self, message_id: Any) -> None:
        self.at("ack")

    def fail(self, message_id: Any, failure: Any) -> None:
        self.at("fail")

    def close(self) -> None:
        self.at("close")

    def event_time(self, number: Number) -> float:
        self.at("event_time")
        return float(number.n)


class Source(Listens):
    def records(self) -> Iterator[Number]:
        for number in NUMBERS:
            self.at("records")
            yield number


class Asked(Listens):
    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.waiting = [*NUMBERS]

    def next_tuple(self, out: Any) -> None:
        if not self.waiting:
            out.finish()
            return
        self.at("next_tuple")
        out.emit(self.waiting[0], message_id=self.waiting.pop(0).n)


class Polls(Listens, LogSpout[Number]):
    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.waiting = [*NUMBERS]

    def poll(self, limit: int) -> Any:
        self.at("poll")
        numbers, self.waiting = self.waiting[:limit], self.waiting[limit:]
        ids = np.array([number.n for number in numbers], np.int64)
        return Polled(ids, numbers, ended=not self.waiting)


class Told(Bolt[Number, Number]):
    emits = Number

    def __init__(self, place: str) -> None:
        self.place, self.failed = place, set[int]()

    def at(self, place: str) -> None:
        if place == self.place:
            raises_next()

    def prepare(self, context: Context) -> None:
        self.at("prepare")

    def process(self, record: Number) -> Iterator[Number]:
        if self.place == "fail" and record.n not in self.failed:
            self.failed.add(record.n)
            raise ValueError
        yield record

    def tick(self) -> None:
        self.at("tick")

    def flush(self) -> None:
        self.at("flush")

    def cleanup(self) -> None:
        self.at("cleanup")


OTHER: dict[str, type[Listens]] = {
    **dict.fromkeys(["open", "records", "ack", "fail", "event_time"], Source),
    **dict.fromkeys(["prepare", "tick", "flush", "cleanup", "activate", "close"], Source),
    "next_tuple": Asked,
    "poll": Polls,
}


# ---- batches: the batch is repeated, and given up if it goes on ---------------------------------


class Pages(PartitionedSpout):
    emits = Number

    def partitions(self) -> list[str]:
        return ["all"]

    def emit_new(self, partition: str, last: Any, room: Any) -> Any:
        first = last or 0
        for number in NUMBERS[first : first + 4]:
            raises(number.n)
            room.emit([number])
        return min(first + 4, TOTAL)

    def emit_again(self, partition: str, metadata: Any, room: Any) -> None:
        room.emit(NUMBERS[max(0, metadata - 4) : metadata])

    def event_time(self, row: Number) -> float:
        return float(row.n)


class Writes(BatchOperator):
    def start(self, attempt: Any) -> list[Number]:
        return []

    def process(self, batch: list[Number], source: int, rows: Any, emit: Any) -> None:
        batch.extend(rows)

    def finish(self, batch: list[Number], attempt: Any, emit: Any) -> None:
        for number in batch:
            raises(number.n)


IN_BATCHES: dict[str, Callable[[Any], Any]] = {
    "map": lambda numbers: numbers.map(mapped),
    "filter": lambda numbers: numbers.filter(kept),
    "flat_map": lambda numbers: numbers.flat_map(twice),
    "peek": lambda numbers: numbers.peek(sink),
    "async map": lambda numbers: numbers.map(awaited),
    "async generator": lambda numbers: numbers.flat_map(generated),
    "record": lambda numbers: numbers.map(checked),
    "aggregator": lambda numbers: numbers.group_by("n").aggregate(Largest(), state=MemoryState()),
    "reducer": lambda numbers: numbers.aggregate(reduce(added, 0), state=MemoryState()),
    "keyed state": lambda numbers: numbers.group_by("n").process(stated, state=MemoryState()),
    "window": lambda numbers: numbers.group_by("n").window(
        tumbling(seconds=5, field="n"), Largest(), state=MemoryState()
    ),
    "operator": lambda numbers: numbers.operate(Writes(), fields=Number),
    "ordinary sink": lambda numbers: numbers.records("all").shuffle().bolt("sink", sink),
    "ordinary async sink": lambda numbers: numbers.records("all").shuffle().bolt("s", async_sink),
}


def run(topology: Topology) -> Any:
    return run_graph(topology.graph())


def run_graph(graph: Any) -> Any:
    with SimCluster(1) as cluster:
        submitted = cluster.submit(graph)
        submitted.wait(1_000.0)
        return submitted.snapshot()


def letters(path: Path) -> list[tuple[int, str]]:
    """The number and the exception of each dead letter."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [(letter["record"]["n"], letter["exception"]) for letter in map(json.loads, lines)]


@pytest.mark.parametrize("place", FOR_A_RECORD)
def test_only_the_records_for_which_user_code_raises_fail(place: str, tmp_path: Path) -> None:
    topology, path = Topology("t"), tmp_path / "dead.jsonl"
    attempts = 10 if place == "table" else 2  # a table fails as a whole
    retry = Retry(attempts=attempts, dead_letters=path)
    FOR_A_RECORD[place](topology.spout("in", Records(NUMBERS, type=Number), retry=retry))
    spout = run(topology).component("in")
    assert dict(letters(path)) == NAMES
    assert (spout.acked, spout.dead) == (TOTAL, len(NAMES))


@pytest.mark.parametrize("bad", [{3, 4, 5}, {6, 7, 8}])  # the fourth in a row is a quarantine
@pytest.mark.parametrize("place", OTHER)
def test_other_code_may_raise_too(
    place: str,
    bad: set[int],
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    Raised.once, Raised.next = True, bad
    topology = Topology("t")
    spout = topology.spout("in", OTHER[place](place))
    spout.shuffle().bolt("told", Told(place), tick_s=0.001)
    if place == "event_time":
        spout.group_by("n").window(tumbling(seconds=5, field="n"), count())
    snapshot = run(topology)
    assert snapshot.component("in").acked == TOTAL
    assert Raised.numbers
    errors = [error.exception for task in snapshot.tasks() for error in task.health.last]
    shown = capsys.readouterr().err + caplog.text
    if place == "flush":  # concerns records only: they were replayed
        assert snapshot.component("in").failed
    elif place != "event_time":  # that record has no time
        for n in Raised.numbers:
            assert NAMES[n] in errors or f"raised {NAMES[n]}" in shown


@pytest.mark.parametrize("place", IN_BATCHES)
def test_batches_for_which_user_code_raises_are_skipped(place: str, tmp_path: Path) -> None:
    topology, path = Topology("t"), tmp_path / "dead.jsonl"
    source = FixedBatchSpout(NUMBERS, 1, type=Number)
    skip = Skip(attempts=2, dead_letters=path)
    IN_BATCHES[place](batches(topology, "in", source, store=InMemory(), skip=skip))
    run(topology)
    assert dict(letters(path)) == NAMES


def test_a_partition_for_which_user_code_raises_is_read_again() -> None:
    Raised.once = True
    topology, seen = Topology("t"), list[int]()
    numbers = batches(topology, "in", Pages(), store=InMemory())
    numbers.group_by("n").aggregate(count(), state=MemoryState()).peek(lambda r: seen.append(r[0]))
    with SimCluster(1) as cluster:
        submitted = cluster.submit(topology.graph())
        while len(seen) < TOTAL:
            submitted.wait(1.0)
    assert Raised.numbers == ERRORS.keys()
    assert sorted(seen) == [*range(TOTAL)]


# ---- what ends the process ----------------------------------------------------------------------


def interrupted(n: Number) -> Number:
    if n.n == 3:
        signal.raise_signal(signal.SIGINT)
    return n


def interrupted_sink(n: Number) -> None:
    interrupted(n)


async def interrupted_call(n: Number) -> Number:
    await asyncio.sleep(0)
    return interrupted(n)


def turned(n: Number) -> Number:
    """As libraries for command lines, which turn Ctrl-C into an exit."""
    try:
        return interrupted(n)
    except KeyboardInterrupt:
        sys.exit(1)


@pytest.mark.parametrize("place", ["map", "async map", "sink", "records", "batches", "turned"])
@pytest.mark.parametrize("how", [run_inline, run_graph])
def test_ctrl_c_ends_a_run_in_the_middle_of_user_code(
    place: str, how: Callable[[Any], Any]
) -> None:
    topology = Topology("t")
    if place == "records":
        topology.spout("in", Interrupted)
    elif place == "batches":
        source = FixedBatchSpout(NUMBERS, 4, type=Number)
        batches(topology, "in", source, store=InMemory()).map(interrupted)
    else:
        numbers = topology.spout("in", Records(NUMBERS, type=Number))
        code: Any = {"async map": interrupted_call, "turned": turned}.get(place, interrupted)
        numbers.shuffle().bolt("b", interrupted_sink) if place == "sink" else numbers.map(code)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit if place == "turned" else KeyboardInterrupt):
        how(topology.graph())
    assert signal.getsignal(signal.SIGINT) is before
    test_ctrl_c_of_user_code_itself_is_an_error_after_a_real_one()


def test_ctrl_c_of_user_code_itself_is_an_error_after_a_real_one() -> None:
    topology = Topology("again")
    topology.spout("in", Records(NUMBERS, type=Number), retry=Retry(attempts=1)).map(mapped)
    with pytest.raises(TopologyFailed, match="mapped"):
        run_inline(topology.graph())


class Interrupted(Spout[Number]):
    def records(self) -> Iterator[Number]:
        yield from map(interrupted, NUMBERS)


def test_a_handler_that_only_notes_a_signal_changes_nothing(tmp_path: Path) -> None:
    with Interrupts() as interrupts:
        interrupts.defer()
        topology, path = Topology("t"), tmp_path / "dead.jsonl"
        retry = Retry(attempts=2, dead_letters=path)
        topology.spout("in", Records(NUMBERS, type=Number), retry=retry).map(noted)
        spout = run(topology).component("in")
        assert interrupts.requested
    assert (spout.acked, spout.dead) == (TOTAL, 1)


def noted(n: Number) -> Number:
    interrupted(n)
    if n.n == 5:
        raise KeyboardInterrupt
    return n


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT])
def test_signals_of_the_command_line_end_user_code(number: signal.Signals) -> None:
    def ended(n: Number) -> Number:
        signal.raise_signal(number)
        return n

    topology = Topology("t")
    topology.spout("in", Records(NUMBERS, type=Number)).map(ended)
    with Interrupts(), pytest.raises(KeyboardInterrupt):
        run(topology)


def test_a_generator_that_the_runtime_closes_does_not_fail(
    capsys: pytest.CaptureFixture[str],
) -> None:
    closed = list[str]()

    class Endless(Spout[Number]):
        def records(self) -> Iterator[Any]:
            try:
                for n in range(3):
                    yield Number(n)
                while True:
                    yield None
            except GeneratorExit:
                closed.append("closed")
                raise

    topology = Topology("t")
    topology.spout("in", Endless).shuffle().bolt("end", end)
    with SimCluster(1) as cluster:
        submitted = cluster.submit(topology.graph())
        submitted.wait(1.0)
        submitted.kill()
    del cluster, submitted
    gc.collect()
    assert closed
    assert "GeneratorExit" not in "".join(capsys.readouterr())


# ---- what becomes a record ----------------------------------------------------------------------


@pytest.mark.parametrize("n", ERRORS)
def test_an_input_whose_record_cannot_be_built_is_unreadable(n: int) -> None:
    read = json_reader(Checked)
    with pytest.raises(UnreadableRecord):
        read(f'{{"n": {n}}}'.encode())
    lines = b"\n".join(f'{{"n": {n}}}'.encode() for n in range(TOTAL))
    records = json_records("in.jsonl", lines, read)
    assert [record for record in records if type(record) is Checked] == [
        Checked(n) for n in range(TOTAL) if n not in ERRORS
    ]
    assert len(records) == TOTAL


@pytest.mark.parametrize("n", ERRORS)
def test_a_message_for_which_a_translation_raises_is_undecodable(n: int) -> None:
    def translate(message: Received) -> Number:
        raises(message.offset)
        return Number(message.offset)

    translator = Translator(Bytes(), Bytes(), translate)
    messages = [Message(topic="a", partition=0, offset=at, value=b"") for at in (0, n, 9)]
    records, odd = translator.records(MessageBatch.of(messages))
    assert odd
    assert [type(record) for record in records] == [Number, Undecodable, Number]
    assert records[1].exception == NAMES[n]
