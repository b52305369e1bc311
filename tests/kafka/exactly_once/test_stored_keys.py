"""Keys and results that `deduplicate` stores are restored exactly; decoding them runs no code."""

from __future__ import annotations

import os
import pickle
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest

from sunshower import Bolt, Context
from sunshower.codec import Codec
from sunshower.errors import StateMismatch, Unserialisable, VersionMismatch
from sunshower.kafka.exactly_once.deduplicate import Deduplicated, deduplicate
from sunshower.state.tree import MemoryForest, MemoryTree

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
NODE = "/deduplicated/shop/count/0"
encode = Codec(exact=True).encode


class Pair(NamedTuple):
    one: int
    other: int


class Count(Bolt[int, None]):
    total: Any = 0

    def process(self, record: int) -> None:
        self.total += record

    def snapshot(self) -> Any:
        return self.total

    def restore(self, state: Any) -> None:
        self.total = state


class Rows(Count):
    def process(self, record: Any) -> None:
        self.total += 1

    def result(self) -> Any:
        return self.total


class RunsCode:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> object:
        return os.mkdir, (str(self._path),)


def open_bolt(forest: MemoryForest, bolt: Count | None = None) -> Deduplicated:
    deduplicated = deduplicate(
        lambda record: record, bolt or Count(), store=lambda: MemoryTree(forest)
    )
    deduplicated.prepare(Context("shop", "count", 1, 0, 1))
    return deduplicated


@pytest.mark.parametrize(
    ("key", "equal"),
    [
        (float("nan"), float("nan")),
        (1, 1.0),
        (Decimal(1), True),
        (0.0, -0.0),
        ([1, float("nan")], (1, float("nan"))),
        (Pair(1, 2), [1, 2]),
        ({1, 2}, frozenset([2, 1])),
        (NOON, NOON.astimezone(timezone(timedelta(hours=2)))),
        (
            datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
            datetime(2024, 10, 27, 1, 30, tzinfo=UTC),
        ),
    ],
)
def test_keys_that_are_one_group_are_one_key_also_after_a_restart(key: Any, equal: Any) -> None:
    forest, context = MemoryForest(), Context("shop", "count", 1, 0, 1)
    for _ in range(2):
        bolt = deduplicate(lambda record: record[0], Rows(), store=lambda: MemoryTree(forest))
        bolt.prepare(context)
        for value in (key, equal, key):
            bolt.process([value])
        bolt.flush()
    assert bolt.result() == 1


def test_a_pickle_in_the_store_is_refused_and_runs_no_code(tmp_path: Path) -> None:
    forest, marker = MemoryForest(), tmp_path / "code was run"
    MemoryTree(forest).create(NODE, pickle.dumps(([], RunsCode(marker))))
    with pytest.raises(StateMismatch, match=rf"{NODE} does not hold .* Remove the node"):
        open_bolt(forest)
    assert not marker.exists()


@pytest.mark.parametrize(
    "value", [b"", b"text", encode(7), encode([2, 5, 0]), encode([2, [[]], 0])]
)
def test_any_other_value_in_the_store_is_refused(value: bytes) -> None:
    forest = MemoryForest()
    MemoryTree(forest).create(NODE, value)
    with pytest.raises(StateMismatch, match=NODE):
        open_bolt(forest)


@pytest.mark.parametrize("value", [[3, [], 0], [3, [], 0, "more"], [3, {}]])
def test_a_value_of_a_later_release_is_a_version_mismatch_whatever_its_form(value: Any) -> None:
    forest = MemoryForest()
    MemoryTree(forest).create(NODE, encode(value))
    with pytest.raises(VersionMismatch, match=f"{NODE} has version 3, .* uses version 2: "):
        open_bolt(forest)


def test_results_that_cannot_be_encoded_are_refused_at_the_start_and_not_stored() -> None:
    forest, bolt = MemoryForest(), Count()
    bolt.total = Pair(0, 0)
    with pytest.raises(Unserialisable, match=r"test_stored_keys\.Pair"):
        open_bolt(forest, bolt)
    assert MemoryTree(forest).get(NODE) is None


def test_a_record_can_be_the_key() -> None:
    class Sum(Count):
        def process(self, record: Any) -> None:
            self.total += record.other

    forest = MemoryForest()
    for _ in range(2):  # the second time after a restart
        bolt = open_bolt(forest, Sum())
        bolt.process(Pair(1, 2))
        bolt.flush()
        assert bolt.bolt.total == 2


def test_keys_and_results_of_every_type_survive_a_restart() -> None:
    class Newest(Count):
        def process(self, record: Any) -> None:
            self.total = {record[0]: {record}, "large": 1 << 200}

    forest, at = MemoryForest(), datetime(2026, 1, 2, tzinfo=UTC)
    for _ in range(2):
        bolt = open_bolt(forest, Newest())
        for record in ((at, Decimal("1.50")), (at, frozenset([1]))):
            bolt.process(record)
        bolt.flush()
    assert bolt.figures()["repeats"] == 2
    assert bolt.bolt.total == {at: {(at, frozenset([1]))}, "large": 1 << 200}
