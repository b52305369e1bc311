"""Tests of the order of records from a log: that of their partition, in messages of any size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from sunshower import Bolt, OnStream, Retry, Topology, count, tumbling
from sunshower.clock import ManualClock
from sunshower.runtime.inline import run_inline
from tests.contract.topologies import Item
from tests.runtime.logs import Log, Reader

PARTITION = 1000  # the numbers of partition p begin with p * PARTITION
LETTERS = Retry(attempts=2, initial_s=0.01, dead_letters=True)

# A message: the stream of each of its records, a text that cannot be read, or one bare record.
Message = list[str] | str
record = st.sampled_from(["default", "others"])
messages = st.lists(
    st.one_of(st.lists(record, max_size=4), record, st.just("unreadable")), max_size=12
)


class FirstCalls(Bolt[Item, None]):
    """Notes the numbers of records when they come for the first time; then raises for some."""

    def __init__(self, failing: Collection[int]) -> None:
        self.failing = failing
        self.numbers: list[int] = []

    def process(self, record: Item) -> None:
        if record.number not in self.numbers:
            self.numbers.append(record.number)
            if record.number in self.failing:
                raise ValueError("once")

    def result(self) -> list[int]:
        return self.numbers


def partition(shapes: list[Message], first: int) -> tuple[list[Any], dict[str, list[int]]]:
    """The messages of a partition, and the numbers of its records by stream."""
    contents: list[Any] = []
    numbers: dict[str, list[int]] = defaultdict(list)
    at = first
    for shape in shapes:
        if shape == "unreadable":
            contents.append("text")
            continue
        records: list[Any] = []
        for stream in [shape] if isinstance(shape, str) else shape:
            is_other = stream == "others"
            records.append(OnStream("others", Item(at)) if is_other else Item(at))
            numbers[stream].append(at)
            at += 1
        contents.append(records[0] if isinstance(shape, str) else records)
    return contents, numbers


def first_calls(
    shapes: list[list[Message]], every: int, *, refetches: bool, ackers: int
) -> tuple[dict[str, list[int]], list[dict[str, list[int]]]]:
    """The numbers in the order in which the bolt of each stream got them first, and in that of each
    partition. With `every`, each such record that is a message by itself fails once."""
    parts = [partition(part_shapes, index * PARTITION) for index, part_shapes in enumerate(shapes)]
    single = {
        message.number for contents, _ in parts for message in contents if isinstance(message, Item)
    }
    failing = {number for number in single if every and number % every == 0}
    log = Log(*(contents for contents, _ in parts))
    topology = Topology("logs", ackers=ackers)
    reader = Reader(log, refetches=refetches)
    records = topology.spout("log", reader, retry=LETTERS, streams={"others": Item})
    records.shuffle().bolt("default", FirstCalls(failing))
    records.stream("others").shuffle().bolt("others", FirstCalls(failing))
    records.stream("dead_letters").shuffle().bolt("letters", lambda _: None, fields=())
    done = run_inline(topology.graph(), clock=ManualClock(), steps_max=50_000)
    assert log.settled
    return {id: done.results[id][0] for id in ("default", "others")}, [
        numbers for _, numbers in parts
    ]


@given(
    shapes=st.lists(messages, min_size=1, max_size=3),
    every=st.sampled_from([0, 1, 3]),
    refetches=st.booleans(),
    ackers=st.integers(0, 1),
)
@example(shapes=[["default", ["default"] * 2, "default"]], every=0, refetches=False, ackers=1)
@example(shapes=[["default", ["default", "others"], "others"]], every=1, refetches=True, ackers=1)
@example(shapes=[["others", [], ["others"] * 2, "others"]], every=0, refetches=False, ackers=0)
def test_first_emits_have_the_order_of_the_partition(
    shapes: list[list[Message]], every: int, refetches: bool, ackers: int
) -> None:
    got, parts = first_calls(shapes, every * ackers, refetches=refetches, ackers=ackers)
    for stream, numbers in got.items():
        for index, expected in enumerate(parts):
            mine = [number for number in numbers if number // PARTITION == index]
            assert mine == expected[stream], f"{stream}, partition {index}"


def test_a_message_without_records_does_not_hold_windows_back() -> None:
    log = Log([Item(1), [], [Item(2), Item(3)], [], Item(11)])
    topology = Topology("logs")
    counts: list[int] = []
    window = tumbling(seconds=10, field="number")
    rows = topology.spout("log", Reader(log)).window(window, count())
    rows.shuffle().bolt("sink", lambda row: counts.append(row[-1]), fields=())
    run_inline(topology.graph(), clock=ManualClock(), steps_max=20_000)
    assert counts == [3, 1]
