"""Combiners that change their arguments, and readers that change results, change nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sunshower import CombinerAggregator, Spout, Topology, count, run_inline, sliding
from sunshower.state import MemoryState, SqliteState
from sunshower.trident import FixedBatchSpout, InMemory, batches


class Event(NamedTuple):
    key: str
    at: int


EVENTS = [Event("abc"[at * at % 3], at) for at in range(90)]
WIDTH, EVERY = 30, 10


class Events(Spout[Any]):
    emits = Event

    def records(self) -> Iterator[Event]:
        yield from EVENTS


class Extended(CombinerAggregator[Any, list[Any]]):
    fields = ("times",)

    def init(self, record: Any) -> list[Any]:
        return [record[1]]

    def combine(self, first: list[Any], second: list[Any]) -> list[Any]:
        first += second
        return first

    def zero(self) -> list[Any]:
        return []


class Reader:
    """Keeps the rows, and a copy of each; with `damages` it changes the lists of the rows."""

    def __init__(self, *, damages: bool) -> None:
        self.damages, self.rows, self.copies = damages, list[Any](), list[Any]()

    def __deepcopy__(self, memo: object) -> Reader:
        return self

    def __call__(self, row: Any) -> None:
        self.rows.append(row)
        self.copies.append((*row[:-1], sorted(row[-1])))
        if self.damages:
            row[-1].append(-1)


STORES = ["task", "memory", "sqlite"]


class Program:
    def __init__(self, folder: Path, store: str, *, in_batches: bool) -> None:
        self.folder, self.store, self.topology = folder, store, Topology("changes")
        if not in_batches:
            self.events: Any = self.topology.spout("events", Events())
            return
        spout = FixedBatchSpout(EVENTS, 7, type=Event)
        self.events = batches(self.topology, "events", spout, store=InMemory())

    def settings(self, name: str) -> dict[str, Any]:
        if self.store == "task":
            return {}
        is_memory = self.store == "memory"
        state = MemoryState(name=name) if is_memory else SqliteState(self.folder / "s.db")
        return {"state": state, "name": name}

    def read(self, rows: Any, *, damages: bool) -> list[Any]:
        reader = Reader(damages=damages)
        rows.peek(reader)
        run_inline(self.topology.graph())
        if not damages:
            assert [(*row[:-1], sorted(row[-1])) for row in reader.rows] == reader.copies
        return reader.copies


KINDS = [(store, kind) for kind in (False, True) for store in STORES if store != "task" or not kind]


@pytest.mark.parametrize("damages", [False, True])
@pytest.mark.parametrize(("store", "in_batches"), KINDS)
class TestChanges:
    def test_windows(self, tmp_path: Path, store: str, in_batches: bool, damages: bool) -> None:
        program = Program(tmp_path, store, in_batches=in_batches)
        window = sliding(seconds=WIDTH, every=EVERY, field="at", unit="s")
        by_key = program.events.group_by("key")
        rows = by_key.window(window, Extended(), **program.settings("windows"))
        expected: dict[Any, list[int]] = {}
        for key, at in EVENTS:
            for end in range(at // EVERY * EVERY + EVERY, at + WIDTH + 1, EVERY):
                expected.setdefault((key, end), []).append(at)
        read = program.read(rows, damages=damages)
        assert {row[:2]: row[2] for row in read} == expected
        assert len(read) == len(expected)

    def test_totals(self, tmp_path: Path, store: str, in_batches: bool, damages: bool) -> None:
        program = Program(tmp_path, store, in_batches=in_batches)
        rows = program.events.group_by("key").aggregate(Extended(), **program.settings("totals"))
        last = {row[0]: row[1] for row in program.read(rows, damages=damages)}
        assert last == {key: [at for event_key, at in EVENTS if event_key == key] for key in last}
        assert last.keys() == {*"ab"}

    def test_totals_of_totals(
        self, tmp_path: Path, store: str, in_batches: bool, damages: bool
    ) -> None:
        program = Program(tmp_path, store, in_batches=in_batches)
        single = program.events.map(lambda event: (event.at % 70,), fields=("number",))
        counts = single.group_by("number").aggregate(count(), **program.settings("counts"))
        rows = counts.aggregate(Extended(), **program.settings("all"))
        numbers = Counter(event.at % 70 for event in EVENTS)
        assert program.read(rows, damages=damages)[-1][-1] == sorted(numbers.values())
