"""PyFlink's DataStream API counts words, or runs a query of Nexmark; run by `python_peers.py`.

Arguments: folder of the files, `words` or a query, mode of execution (`process` or `thread`).

Two tasks of each operator, exactly-once checkpoints each second, state on the heap of Java. The
result is the number of words, or the sum of one number of each row of the query. It does not run
without PyFlink's compiled coders.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

# In the loopback mode, which is the default on one machine, all workers share this process.
os.environ["_python_worker_execution_mode"] = "process"  # noqa: SIM112
os.environ["PYTHONPATH"] = sysconfig.get_path("purelib")  # for the interpreter in Java's process

from pyflink.common import Configuration, Duration, Time, Types
from pyflink.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSource, StreamFormat
from pyflink.datastream.functions import (
    AggregateFunction,
    FlatMapFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessWindowFunction,
)
from pyflink.datastream.state import (
    ListStateDescriptor,
    ValueStateDescriptor,
)
from pyflink.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from pyflink.fn_execution import coder_impl_fast  # noqa: F401  raises if not compiled
from pyflink.fn_execution.beam import beam_operations_fast  # noqa: F401

PARALLELISM = 2
# Made anew for each use: one whose type in Java is known cannot be pickled.
LONG, PICKLED = Types.LONG, Types.PICKLED_BYTE_ARRAY
SETTINGS = {
    "python.executable": sys.executable,
    "python.client.executable": sys.executable,
    "python.fn-execution.bundle.size": "10000",
    "python.state.cache-size": "100000",
    "parallelism.default": str(PARALLELISM),
    "execution.checkpointing.interval": "1 s",
    "execution.checkpointing.dir": Path("checkpoints").absolute().as_uri(),
    "restart-strategy.type": "none",
    "rest.bind-port": "0",
    "taskmanager.memory.managed.size": "512 mb",
}
NOTES = Path("notes").absolute()  # a file of each task that begins or ends the job
Stream = Any


def note(**figures: float) -> None:
    (NOTES / uuid.uuid4().hex).write_text(json.dumps(figures))


class Parse(MapFunction):
    """Parses lines. The fields with these numbers are integers."""

    def __init__(self, integers: tuple[int, ...]) -> None:
        self.integers, self.begun_s = integers, 0.0

    def map(self, line: str) -> tuple[Any, ...]:
        if not self.begun_s:
            self.begun_s = time.monotonic()
        fields: list[Any] = line.split(",")
        for number in self.integers:
            fields[number] = int(fields[number])
        return tuple(fields)

    def close(self) -> None:
        if self.begun_s:
            note(begun_s=self.begun_s)


class Tally(FlatMapFunction):
    """Adds one number of each row, and emits nothing."""

    def __init__(self, value: Callable[[Any], int]) -> None:
        self.value, self.sum, self.ended_s = value, 0, 0.0

    def flat_map(self, row: Any) -> Iterable[Any]:
        self.sum += self.value(row)
        self.ended_s = time.monotonic()
        return ()

    def close(self) -> None:
        if self.ended_s:
            note(sum=self.sum, ended_s=self.ended_s)


class Split(FlatMapFunction):
    """Emits the words of lines."""

    begun_s = 0.0

    def flat_map(self, line: str) -> Iterable[str]:
        if not self.begun_s:
            self.begun_s = time.monotonic()
        return line.split()

    def close(self) -> None:
        if self.begun_s:
            note(begun_s=self.begun_s)


class CountWords(KeyedProcessFunction):
    """Counts words, and emits nothing."""

    def __init__(self) -> None:
        self.sum, self.ended_s = 0, 0.0

    def open(self, context: Any) -> None:
        self.total = context.get_state(ValueStateDescriptor("total", LONG()))

    def process_element(self, word: str, context: Any) -> Iterable[Any]:
        self.total.update((self.total.value() or 0) + 1)
        self.sum += 1
        self.ended_s = time.monotonic()
        return ()

    def close(self) -> None:
        if self.ended_s:
            note(sum=self.sum, ended_s=self.ended_s)


class LastField(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[-1])


class Count(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, one: int, other: int) -> int:
        return one + other


class WithKeyAndEnd(ProcessWindowFunction):
    def process(self, key: int, context: Any, elements: Iterable[int]) -> Iterator[Any]:
        for count in elements:
            yield key, context.window().end, count


class MostBids(ProcessWindowFunction):
    def process(self, key: int, context: Any, elements: Iterable[Any]) -> Iterator[Any]:
        rows = list(elements)
        most = max(count for _, _, count in rows)
        yield from (row for row in rows if row[2] == most)


class Highest(AggregateFunction):
    """The bids (auction, bidder, price, at) with the highest price."""

    def create_accumulator(self) -> list[Any]:
        return []

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        if not accumulator or value[2] > accumulator[0][2]:
            return [value]
        return [*accumulator, value] if value[2] == accumulator[0][2] else accumulator

    def get_result(self, accumulator: list[Any]) -> list[Any]:
        return accumulator

    def merge(self, one: list[Any], other: list[Any]) -> list[Any]:
        bids = one + other
        return [bid for bid in bids if bid[2] == max(bid[2] for bid in bids)]


class JoinAuction(KeyedCoProcessFunction):
    """Each bid with its auction: a bid that comes first waits."""

    def open(self, context: Any) -> None:
        self.auction = context.get_state(ValueStateDescriptor("auction", PICKLED()))
        self.waiting = context.get_list_state(ListStateDescriptor("waiting", PICKLED()))

    def process_element1(self, bid: Any, context: Any) -> Iterator[Any]:
        auction = self.auction.value()
        if auction is None:
            self.waiting.add(bid)
        else:
            yield (*bid, *auction[1:])

    def process_element2(self, auction: Any, context: Any) -> Iterator[Any]:
        self.auction.update(auction)
        for bid in self.waiting.get() or ():
            yield (*bid, *auction[1:])
        self.waiting.clear()


def read(env: Any, folder: str) -> Stream:
    """The lines of the files in a folder."""
    lines = StreamFormat.text_line_format("utf-8")
    source = FileSource.for_record_stream_format(lines, f"file://{folder}").build()
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "lines")


def timed(bids: Stream, *fields: int) -> Stream:
    """These fields of bids, with the event time as the last of them."""
    chosen = bids.map(
        lambda bid: tuple([bid[number] for number in fields]),
        output_type=Types.TUPLE([LONG() for _ in fields]),
    )
    return chosen.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_bounded_out_of_orderness(
            Duration.of_seconds(2)
        ).with_timestamp_assigner(LastField())
    )


def counts(keyed: Stream, windows: Any) -> Stream:
    """(key, end, count) of each window."""
    return keyed.window(windows).aggregate(
        Count(),
        window_function=WithKeyAndEnd(),
        accumulator_type=LONG(),
        output_type=Types.TUPLE([LONG(), LONG(), LONG()]),
    )


def by_field(stream: Stream, number: int) -> Stream:
    return stream.key_by(lambda record: record[number], key_type=LONG())


def q5(bids: Stream) -> Stream:
    windows = SlidingEventTimeWindows.of(Time.seconds(10), Time.seconds(2))
    by_end = by_field(counts(by_field(timed(bids, 0, 5), 0), windows), 1)
    return by_end.window(TumblingEventTimeWindows.of(Time.seconds(2))).process(MostBids())


def q7(bids: Stream) -> Stream:
    every = timed(bids, 0, 1, 2, 5).key_by(lambda _: 0, key_type=LONG())
    highest = every.window(TumblingEventTimeWindows.of(Time.seconds(10))).aggregate(
        Highest(), accumulator_type=PICKLED(), output_type=PICKLED()
    )
    return highest.flat_map(lambda best: best)


def q11(bids: Stream) -> Stream:
    # Flink merges sessions that are exactly the gap apart.
    sessions = EventTimeSessionWindows.with_gap(Time.milliseconds(9_999))
    return counts(by_field(timed(bids, 1, 5), 0), sessions)


def q12(bids: Stream) -> Stream:
    windows = TumblingEventTimeWindows.of(Time.seconds(10))
    return counts(by_field(timed(bids, 1, 5), 0), windows)


def q20(bids: Stream, auctions: Stream) -> Stream:
    chosen = auctions.filter(lambda auction: auction[8] == 10)
    both = bids.connect(chosen).key_by(lambda bid: bid[0], lambda auction: auction[0], LONG())
    return both.process(JoinAuction())


QUERIES: dict[str, tuple[Callable[..., Stream], Callable[[Any], int]]] = {
    "q0": (
        lambda bids: bids.map(lambda bid: (bid[0], bid[1], bid[2], bid[5], bid[6])),
        lambda row: row[2],
    ),
    "q1": (
        lambda bids: bids.map(lambda bid: (bid[0], bid[1], 0.908 * bid[2], bid[5], bid[6])),
        lambda row: round(row[2] * 1000),
    ),
    "q2": (
        lambda bids: bids.filter(lambda bid: bid[0] % 123 == 0).map(lambda bid: (bid[0], bid[2])),
        lambda row: row[1],
    ),
    "q5": (q5, lambda row: row[2]),
    "q7": (q7, lambda row: row[2]),
    "q11": (q11, lambda row: row[2] * row[2]),
    "q12": (q12, lambda row: row[2]),
    "q20": (q20, lambda row: row[2]),
}


def declare_query(env: Any, folder: str, query: str) -> Stream:
    inputs = [read(env, f"{folder}/bids").map(Parse((0, 1, 2, 5)))]
    if query == "q20":
        inputs.append(read(env, f"{folder}/auctions").map(Parse((0, 3, 4, 5, 6, 7, 8))))
    declare, value = QUERIES[query]
    return declare(*inputs).flat_map(Tally(value))


def declare_words(env: Any, folder: str) -> Stream:
    words = read(env, folder).flat_map(Split(), output_type=Types.STRING())
    return words.key_by(lambda word: word, key_type=Types.STRING()).process(CountWords())


def main() -> None:
    folder, job, mode = sys.argv[1:]
    NOTES.mkdir()
    settings = Configuration()
    for name, value in {**SETTINGS, "python.execution-mode": mode}.items():
        settings.set_string(name, value)
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    end = declare_words(env, folder) if job == "words" else declare_query(env, folder, job)
    end.print()
    env.execute(job)
    notes = [json.loads(path.read_text()) for path in NOTES.iterdir()]
    result = {
        "begun_s": min(each["begun_s"] for each in notes if "begun_s" in each),
        "ended_s": max(each["ended_s"] for each in notes if "ended_s" in each),
        "done": sum(each.get("sum", 0) for each in notes),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
