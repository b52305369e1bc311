"""Values of every kind as keys, a program that groups by them in every way, and expected counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np

from sunshower import Bolt, Topology
from sunshower.records import key_of
from sunshower.topologies.operators.states import StateFactory
from sunshower.trident import FixedBatchSpout, InMemory, batches, count, tumbling
from tests.runtime.field_values import Color, Unit

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
KEYS: list[Any] = [
    (1, 2),
    [1, 2],
    (3,),
    [(1, [2]), "a"],
    {"a": [1, (2,)], "b": None},
    {"b": None, "a": (1, [2])},
    b"",
    b"\xff\x00",
    "text",
    "\ud800",
    None,
    True,
    1,
    1.0,
    np.int64(1),
    np.bool_(False),
    0,
    -0.0,
    np.float32(0.5),
    0.5,
    float("nan"),
    -float("nan"),
    np.float64("nan"),
    float("inf"),
    2**63,
    -(2**200),
    1e300,
    (None, b"x", (float("nan"),)),
    [None, b"x", [float("nan")]],
    np.str_("text"),
    NOON,
    NOON.astimezone(ZoneInfo("Asia/Tokyo")),
    NOON.replace(tzinfo=None),
    NOON.date(),
    NOON.timetz(),
    timedelta(-1, 5),
    Decimal(1),
    Decimal("1.10"),
    Decimal("1.1"),
    Decimal("NaN"),
    UUID(int=7),
    {1, 2},
    frozenset([2.0, True]),
    (NOON, frozenset([NOON.date()])),
    Unit.METRE,
    Color.RED,
]
STORED = [key for key in KEYS if key not in ("\ud800", Color.RED)]  # states refuse these two
ROWS = 2  # of each key

KeyCounts = dict[str, Counter[Any]]


def expected(keys: list[Any]) -> Counter[Any]:
    return Counter(key_of(key) for key in keys for _ in range(ROWS))


def program(state: Callable[[str], StateFactory], seen: KeyCounts) -> Topology:
    """Group the same rows with all operations, and count the rows of each in `seen`."""
    topology = Topology("keys")
    rows = [(key, number) for number, key in enumerate(STORED * ROWS)]
    spout = FixedBatchSpout(rows, 7, fields=("key", "n"))
    stream = batches(topology, "rows", spout, store=InMemory()).shuffle(parallelism=2)
    by_key = stream.group_by("key")
    by_key.aggregate(count(), state=state("counts"), parallelism=2, name="counts")
    two = stream.group_by("key", "n")
    two.aggregate(count(), state=state("pairs"), parallelism=2, name="pairs")
    window = tumbling(count=ROWS)
    fired = by_key.window(window, count(), state=state("windows"), parallelism=2, name="windows")

    def take(name: str, size: int) -> Callable[[Any], None]:
        def note(row: Any) -> None:
            seen[name][key_of(row[0])] += row[size] if size else 1

        return note

    by_key.aggregate(count(), parallelism=2).peek(take("aggregate", 1))
    fired.peek(take("window", 2))
    stream.partition_by("key", parallelism=2).peek(take("partition_by", 0))
    joined = stream.join(stream.map(same, fields=("key", "m")), on="key", parallelism=2)
    joined.filter(is_same).peek(take("join", 0))
    return topology


def same(row: Any) -> Any:
    return row


def is_same(row: Any) -> bool:
    return bool(row[1] == row[2])


class Group(Bolt[Any, None]):
    """Counts the rows of each key that its task receives."""

    def prepare(self, context: Any) -> None:
        self.seen: Counter[Any] = Counter()

    def process(self, row: Any) -> None:
        self.seen[key_of(row[0])] += 1

    def result(self) -> Any:
        return list(self.seen.items())
