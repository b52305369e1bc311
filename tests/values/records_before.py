"""Records whose JSON in `records_before.jsonl` has arrays in place of NamedTuples within values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

from tests.runtime.field_values import Level, Unit

FILE = Path(__file__).with_suffix(".jsonl")


class Point(NamedTuple):
    x: int
    y: float = 0.5


@dataclass
class Place:
    name: str
    point: Point | None = None
    around: list[Point] = field(default_factory=list)


class Journey(NamedTuple):
    at: datetime
    price: Decimal
    unit: Unit
    places: dict[str, Place]
    points: tuple[Point, ...]
    levels: dict[Level, Point | None]
    back: Point | str | None
    next: Journey | None = None


BERLIN = ZoneInfo("Europe/Berlin")
FIRST = Journey(
    datetime(2025, 10, 26, 2, 30, tzinfo=BERLIN, fold=1),
    Decimal("1.50"),
    Unit.METRE,
    {"a": Place("b", Point(1), [Point(2, 1.5), Point(3)])},
    (Point(4), Point(5, -0.0)),
    {Level.LOW: Point(6), Level.HIGH: None},
    Point(7),
)


class Days(NamedTuple):
    of: date | Point
    length: timedelta
    id: UUID


RECORDS = [
    FIRST,
    FIRST._replace(at=datetime(2026, 1, 2, tzinfo=UTC), back="home", next=FIRST),
    Days(date(2026, 1, 2), timedelta(-1, 3600), UUID(int=5)),
    Days(Point(8), timedelta(microseconds=1), UUID(int=6)),
]
