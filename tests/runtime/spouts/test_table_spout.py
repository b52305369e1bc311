"""Tests of spouts with tables(): each row has its own tree, and only failed rows are replayed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from sunshower.clock import ManualClock
from sunshower.errors import SunshowerError
from sunshower.runtime.inline import run_inline
from sunshower.topologies.components import Bolt, Spout
from sunshower.topologies.topology import Topology


class Columns(Spout[Any]):
    """Yields two tables, and between them a pause and an empty table."""

    emits = ("value",)

    def __init__(self, *names: str) -> None:
        self.names = list(names or ("value",))
        self.acked: list[int] = []

    def tables(self) -> Iterator[pa.Table | None]:
        for numbers in ([0, 1, 2, 3, 4, 5, 6], None, [], [7, 8, 9]):
            yield None if numbers is None else pa.table([pa.array(numbers, pa.int64())], self.names)

    def ack(self, message_id: int) -> None:
        self.acked.append(message_id)

    def result(self) -> list[int]:
        return self.acked


class FailsOnce(Bolt[Any, Any]):
    """Raises for each multiple of three the first time."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def process(self, record: tuple[int]) -> None:
        first = record[0] not in self.seen
        self.seen.append(record[0])
        if first and record[0] % 3 == 0:
            raise ValueError(record[0])

    def result(self) -> list[int]:
        return sorted(self.seen)


def run(spout: Columns, **settings: Any) -> Any:
    topology = Topology("columns", **settings)
    topology.spout("rows", spout).shuffle().bolt("sink", FailsOnce, fields=())
    return run_inline(topology.graph(), clock=ManualClock(), steps_max=10_000)


def test_each_row_is_acked_once_by_its_position() -> None:
    assert sorted(run(Columns()).results["rows"][0]) == list(range(10))


def test_only_the_rows_that_failed_are_replayed() -> None:
    finished = run(Columns())
    assert finished.results["sink"][0] == [0, 0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 9, 9]
    assert finished.snapshot.component("rows").replayed == 4


def test_a_table_larger_than_the_pending_table_is_emitted_in_pieces() -> None:
    assert sorted(run(Columns(), spout_pending=2).results["rows"][0]) == list(range(10))


def test_without_ackers_every_row_is_processed_once() -> None:
    finished = run(Columns(), ackers=0)
    assert finished.results["sink"][0] == list(range(10))


def test_a_table_with_other_columns_is_refused_by_name() -> None:
    with pytest.raises(SunshowerError, match=r"yielded \['other'\].*columns are \['value'\]"):
        run(Columns("other"))
