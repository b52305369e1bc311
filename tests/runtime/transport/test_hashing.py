"""Equal keys go to the same task: in every process, after every restart, as rows or columns."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given

from sunshower.errors import BadEmit
from sunshower.runtime.transport import routing
from sunshower.runtime.transport.routing import KeyTable, stable_hash
from tests.runtime.field_values import Access, Color, Line, Point, Unit
from tests.runtime.field_values import hashables as keys
from tests.structure.reading import ROOT

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
KEYS: list[Any] = [
    "rain",
    "",
    "\udc80",
    b"rain",
    0,
    -1,
    1 << 80,
    0.5,
    None,
    ("a", 1),
    ("a", ("b",)),
    NOON,
    NOON.date(),
    NOON.timetz(),
    timedelta(-1, 5),
    Decimal("1.10"),
    UUID(int=7),
    Color.GREEN,
    Unit.METRE,
    Access.READ | Access.WRITE,
    frozenset("abcdef"),
    Line((Point(frozenset("xyz"), Color.RED),)),
]


def test_another_process_with_another_hash_seed_agrees() -> None:
    program = (
        "from tests.runtime.transport.test_hashing import KEYS\n"
        "from sunshower.runtime.transport.routing import stable_hash\n"
        "print(*map(stable_hash, KEYS), hash('rain'))"
    )
    answers = set()
    salts = set()
    for salt in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": salt, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        *hashes, salted = done.stdout.split()
        answers.add(tuple(map(int, hashes)))
        salts.add(salted)
    assert len(salts) == 2, "both processes have the same hash seed, so this proves nothing"
    assert answers == {tuple(map(stable_hash, KEYS))}


@given(keys, keys)
def test_values_that_are_equal_hash_equally(left: Any, right: Any) -> None:
    assert left != right or stable_hash(left) == stable_hash(right)


@pytest.mark.parametrize(
    "same",
    [
        (1, 1.0, True),
        (0, -0.0, False),
        (2**60, 2.0**60),
        (("a", 1), ["a", 1]),
        ({"a": 1, "b": (2,)}, {"b": [2.0], "a": True}),
        (Decimal("1.0"), 1, Decimal(1)),
        (Decimal("0.5"), 0.5, Decimal("0.500")),
        (Decimal("1.10"), Decimal("1.1")),
        (Decimal("-Infinity"), float("-inf")),
        ({1, 2}, frozenset([2.0, True])),
        (NOON, NOON.astimezone(ZoneInfo("Asia/Tokyo")), NOON.astimezone(timezone.max)),
        (Unit.METRE, "m"),
        (Point(1), (1, None), [1, None]),
    ],
)
def test_equal_values_of_several_types_are_one_key(same: tuple[Any, ...]) -> None:
    assert len(set(map(stable_hash, same))) == 1


@given(keys)
def test_hash_has_32_bits(key: Any) -> None:
    assert 0 <= stable_hash(key) < 1 << 32


def test_types_and_nestings_are_distinguished() -> None:
    different = ["1", b"1", 1, ("1",), (("1",),), ("1", ""), ("", "1"), (), None, "None", 1.5]
    assert len(set(map(stable_hash, different))) == len(different)


@pytest.mark.parametrize("key", [object(), {1j}, ("a", object())])
def test_key_that_other_processes_would_hash_differently_is_refused(key: Any) -> None:
    with pytest.raises(BadEmit, match=r"a key of type (object|complex) has no hash .* group by"):
        stable_hash(key)


def test_table_is_bounded_and_gives_the_same_answers_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routing, "_KEYS_MAX", 10)
    table = KeyTable(7)
    first = {key: table[key] for key in range(100)}
    assert len(table) <= 10, "it would grow with the stream"
    assert {key: table[key] for key in range(100)} == first
    assert set(first.values()) == set(range(7))


def test_key_that_python_cannot_hash_is_found_too() -> None:
    assert KeyTable(5).find(["a", 1]) == KeyTable(5).find(("a", 1)) == stable_hash(("a", 1)) % 5


def test_table_distinguishes_moments_that_python_takes_for_equal() -> None:
    first = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    second = first.replace(fold=1)
    assert first == second
    for wrap in (
        lambda value: value,
        lambda value: ("a", value),
        Point,
        lambda value: Line((Point(value),)),
    ):
        pair = [wrap(first), wrap(second)]
        hashed = [stable_hash(value) % 4096 for value in pair]
        assert hashed[0] != hashed[1]
        assert KeyTable(4096).find_all(pair) == hashed
        assert KeyTable(4096).find_all(pair[::-1]) == hashed[::-1]
