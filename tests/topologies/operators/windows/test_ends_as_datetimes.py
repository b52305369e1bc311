"""The end of a window is a number, or the datetime that its record type declares."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pytest

from sunshower import Records, Topology, count, run_inline, sessions, sliding, tumbling
from sunshower.clock import VIRTUAL_DATE, ManualClock
from sunshower.errors import RecordMismatch
from sunshower.state import MemoryState
from sunshower.topologies.operators.windows.event_times import as_datetime
from sunshower.trident import FixedBatchSpout, InMemory, batches
from tests.topologies.operators.kinds import Kept

NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)


class Dated(NamedTuple):
    k: str
    at: datetime


class Day(NamedTuple):
    k: str
    at: date | None


class Numbered(NamedTuple):
    k: str
    at: float


class Total(NamedTuple):
    k: str
    ended: datetime
    number: int


class Optional(NamedTuple):
    k: str
    ended: datetime | None
    number: int


class Plain(NamedTuple):
    k: str
    ended: float
    number: int


class Either(NamedTuple):
    k: str
    ended: float | datetime
    number: int


def ended(
    rows: list[Any], window: Any, out: type[Any], *, of_batches: bool = False, late: bool = False
) -> list[Any]:
    """The rows of the windows of a run, in order."""
    topology = Topology("ends")
    if of_batches:
        spout = FixedBatchSpout(rows, 1, type=type(rows[0]))
        grouped: Any = batches(topology, "rows", spout, store=InMemory()).group_by("k")
        windows = grouped.window(window, count(), fields=out, state=MemoryState()).records("out")
    else:
        grouped = topology.spout("rows", Records(rows, type=type(rows[0]))).group_by("k")
        windows = grouped.window(window, count(), fields=out)
        windows = windows.late if late else windows
    windows.shuffle().bolt("kept", Kept)
    results = run_inline(topology.graph(), clock=ManualClock()).results["kept"][0]
    return sorted(results)


MINUTE = [Dated("a", NOON), Dated("a", NOON + timedelta(microseconds=1)), Dated("a", NOON)]
LATER = Dated("b", NOON + timedelta(hours=1))


@pytest.mark.parametrize("out", [Total, Optional])
@pytest.mark.parametrize("of_batches", [False, True])
def test_a_declared_datetime_is_emitted_in_utc(out: Any, of_batches: bool) -> None:
    window = tumbling(seconds=0.1, field="at")
    first, *_ = ended([*MINUTE, LATER], window, out, of_batches=of_batches)
    assert first == out("a", NOON + timedelta(milliseconds=100), 3)
    assert (type(first[1]), first[1].tzinfo) == (datetime, UTC)


@pytest.mark.parametrize("out", [Plain, Either])
@pytest.mark.parametrize("of_batches", [False, True])
def test_a_declared_number_is_one(out: Any, of_batches: bool) -> None:
    rows = [*MINUTE, LATER]
    first, *_ = ended(rows, tumbling(seconds=60, field="at"), out, of_batches=of_batches)
    assert first == out("a", (NOON + timedelta(minutes=1)).timestamp(), 3)


def test_sessions_slides_dates_and_local_times_have_datetimes_too() -> None:
    gap, slide = sessions(gap=1.5, field="at"), sliding(seconds=120, every=60, field="at")
    last = NOON + timedelta(seconds=1.5, microseconds=1)
    assert ended(MINUTE, gap, Total) == [Total("a", last, 3)]
    ends = [NOON + timedelta(minutes=minutes) for minutes in (1, 2)]
    assert ended(MINUTE, slide, Total) == [Total("a", end, 3) for end in ends]
    day = tumbling(seconds=86_400, field="at")
    midnight = datetime(2024, 6, 2, tzinfo=UTC)
    assert ended([Day("a", date(2024, 6, 1))], day, Total) == [Total("a", midnight, 1)]
    local = tumbling(seconds=60, field="at", zone="Europe/Berlin")
    rows = [Dated("a", datetime(2024, 6, 1, 14))]  # noqa: DTZ001
    assert ended(rows, local, Total) == [Total("a", NOON + timedelta(minutes=1), 1)]


def test_times_whose_type_is_not_declared_are_taken_for_seconds_since_1970() -> None:
    topology = Topology("ends")
    names = topology.spout("names", Records([("a", "A")], fields=("k", "name")))
    joined = topology.spout("rows", Records(MINUTE, type=Dated)).join(
        names.group_by("k").table(), "k"
    )
    window = tumbling(seconds=60, field="at")
    joined.group_by("k").window(window, count(), fields=Total).shuffle().bolt("kept", Kept)
    results = run_inline(topology.graph(), clock=ManualClock()).results["kept"][0]
    assert results == [Total("a", NOON + timedelta(minutes=1), 3)]


@pytest.mark.parametrize(
    ("row", "window"),
    [
        (Numbered("a", 1.0), tumbling(seconds=60, field="at")),
        (Dated("a", NOON), tumbling(count=1)),
        (Numbered("a", 1.0), sessions(gap=2, field="at")),
    ],
)
def test_a_datetime_for_what_is_a_number_is_refused(row: Any, window: Any) -> None:
    with pytest.raises(RecordMismatch, match=r"Total\.ended is datetime, and its values are int"):
        ended([row], window, Total)


def test_the_end_of_a_window_of_the_clock_may_be_a_datetime() -> None:
    assert ended(MINUTE, tumbling(seconds=60), Total) == [
        Total("a", VIRTUAL_DATE + timedelta(seconds=60), 3)
    ]


def test_times_become_the_nearest_microsecond_within_the_years_of_a_datetime() -> None:
    assert as_datetime(0) == datetime(1970, 1, 1, tzinfo=UTC)
    assert as_datetime(-0.1) == datetime(1969, 12, 31, 23, 59, 59, 900_000, tzinfo=UTC)
    assert as_datetime(Decimal("1e-7")) == as_datetime(0)
    assert as_datetime(10**20) == datetime.max.replace(tzinfo=UTC)
    assert as_datetime(-(10**20)) == datetime.min.replace(tzinfo=UTC)
