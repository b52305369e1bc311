"""Groups and states with keys and values of every plain type, in both kinds of stream."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sunshower import CombinerAggregator, KeyState, Records, Retry, Topology, count, tumbling
from sunshower.simulation import SimCluster
from sunshower.state import MemoryState, SqliteState
from sunshower.trident import FixedBatchSpout, InSqlite, Skip, batches

KEYS: list[Any] = [
    *("\ud800", "a\udfff", "\ud83d\ude00", "😀", "\x00", "", 1, 1.5, None, b"\xff", (1, "\ud800")),
    *(date(2026, 1, 2), Decimal("1.5000001"), frozenset([None, "\udc00"])),
]


class Row(NamedTuple):
    key: Any
    n: int


ROWS = [Row(key, n) for n, key in enumerate(KEYS * 3)]


class Seen(CombinerAggregator[Row, dict[Any, int]]):
    """How often each key was seen, in a dictionary with these keys."""

    def init(self, record: Row) -> dict[Any, int]:
        return {record.key: 1}

    def combine(self, first: dict[Any, int], second: dict[Any, int]) -> dict[Any, int]:
        return dict(Counter(first) + Counter(second))

    def zero(self) -> dict[Any, int]:
        return {}


def note(row: Row, state: KeyState[dict[Any, int]]) -> Iterator[Row]:
    state.value = {**(state.value or {}), row.key: row.n, row.n: 1}
    yield Row(row.key, len(state.value))


def run(topology: Topology) -> Any:
    with SimCluster(3) as cluster:
        submitted = cluster.submit(topology.graph())
        assert submitted.wait(1_000.0)
        return submitted.snapshot()


def source(topology: Topology, kind: str, path: Path, **more: Any) -> Any:
    if kind == "records":
        retry = Retry(attempts=1, dead_letters=path / "dead.jsonl")
        return topology.spout("in", Records(ROWS, type=Row), retry=retry)
    skip = Skip(attempts=1, dead_letters=path / "dead.jsonl")
    spout = FixedBatchSpout(ROWS, 5, type=Row)
    return batches(topology, "in", spout, store=InSqlite(path / "batches.db"), skip=skip)


def in_memory(path: Path) -> Any:
    return MemoryState()


def in_sqlite(path: Path) -> Any:
    return SqliteState(path.with_suffix(".db"))


@pytest.mark.parametrize("store", [in_memory, in_sqlite])
@pytest.mark.parametrize("kind", ["records", "batches"])
def test_totals_and_states_have_every_plain_key(
    kind: str, store: Callable[[Path], Any], tmp_path: Path
) -> None:
    topology, states = Topology("t", workers=2), [store(tmp_path / name) for name in "abc"]
    rows = source(topology, kind, tmp_path)
    groups = rows.group_by("key")
    groups.aggregate(Seen(), name="seen", state=states[0], parallelism=2)
    groups.process(note, name="noted", state=states[1], parallelism=2)
    groups.window(tumbling(count=2), count(), name="windows", state=states[2], parallelism=2)
    run(topology)
    assert not (tmp_path / "dead.jsonl").read_text(encoding="utf-8")
    if store is in_sqlite:
        assert dict(states[0].items("seen")) == {key: {key: 3} for key in KEYS}


def refuse(row: Row) -> Row:
    if row.key == "\ud800":
        raise ValueError(row.key)
    return row


@pytest.mark.parametrize("kind", ["records", "batches"])
def test_a_lone_surrogate_in_a_dead_letter_fails_nothing_else(kind: str, tmp_path: Path) -> None:
    topology = Topology("t", workers=2)
    source(topology, kind, tmp_path).map(refuse).group_by("key").aggregate(count())
    run(topology)
    lines = (tmp_path / "dead.jsonl").read_text(encoding="utf-8").splitlines()
    letters = [json.loads(line)["record"] for line in lines]
    assert len([letter for letter in letters if letter["n"] % len(KEYS) == 0]) == 3
