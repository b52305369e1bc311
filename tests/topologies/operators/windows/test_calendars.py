"""Days, weeks and months of every time zone, and windows that begin at an offset."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cache
from random import Random
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

import pytest

from sunshower import (
    Context,
    Records,
    Spout,
    Topology,
    collect,
    count,
    run_inline,
    sessions,
    sliding,
    sum_,
    tumbling,
)
from sunshower.clock import ManualClock
from sunshower.errors import ConfigError, RecordMismatch, TopologyError
from sunshower.state import MemoryState, SqliteState
from sunshower.topologies.operators.windows.window_kinds import AlignedWindow, CalendarPanes, Window
from sunshower.trident import FixedBatchSpout, InMemory, batches
from tests.seeds import seeds
from tests.topologies.operators.kinds import Kept

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001
BERLIN = ZoneInfo("Europe/Berlin")
FIRST, LAST = 0, int((datetime(2038, 1, 1) - EPOCH).total_seconds())  # noqa: DTZ001
STEP = 6 * 3_600  # no zone has had two changes within this time
ZONES = sorted(available_timezones() - {"localtime", "Factory"})
ODD = [  # half hours, no midnights, days left out, changes at one minute past midnight, …
    *("Europe/Berlin", "America/Sao_Paulo", "Pacific/Apia", "America/St_Johns", "Asia/Kathmandu"),
    *("America/Havana", "Asia/Beirut", "Africa/Cairo", "Antarctica/Troll", "Australia/Lord_Howe"),
    *("Pacific/Kwajalein", "Africa/Monrovia", "Asia/Pyongyang", "America/Caracas", "UTC"),
]


# ---- panes ---------------------------------------------------------------------------------------


def offset_at(zone: ZoneInfo, second: int) -> int:
    """The offset of a zone at a second since 1970, in seconds."""
    moment = datetime.fromtimestamp(second, UTC).astimezone(zone)
    return int((moment.utcoffset() or timedelta()).total_seconds())


@cache
def segments(zone: ZoneInfo) -> list[tuple[int, int]]:
    """(first second, offset) of the times between two changes."""
    parts, before = [(FIRST - 4 * STEP, offset_at(zone, FIRST - 4 * STEP))], FIRST - 4 * STEP
    for second in range(before + STEP, LAST + 3 * STEP, STEP):
        if offset_at(zone, second) != parts[-1][1]:
            low, high = before, second
            while high - low > 1:
                middle = (low + high) // 2
                if offset_at(zone, middle) == parts[-1][1]:
                    low = middle
                else:
                    high = middle
            parts.append((high, offset_at(zone, high)))
        before = second
    return parts


def first_seconds(parts: Sequence[tuple[int, int]], shown: Sequence[int]) -> list[int]:
    """The first seconds at which clocks show these local seconds since 1970, or later ones."""
    seconds, index = list[int](), 0
    for local in shown:
        while index + 1 < len(parts):
            end, offset = parts[index + 1][0], parts[index][1]
            if local - offset < end:
                break
            index += 1
        begin, offset = parts[index]
        seconds.append(max(begin, local - offset))
    return seconds


def begins(unit: str, offset_s: int) -> list[int]:
    """The local seconds since 1970 at which days, weeks or months begin."""
    if unit == "months":
        dates = [date(year, month, 1) for year in range(1970, 2038) for month in range(1, 13)]
    elif unit == "weeks":
        dates = [date(1970, 1, 5) + timedelta(weeks=n) for n in range(3_547)]
    else:
        dates = [date(1970, 1, 2) + timedelta(days=n) for n in range(24_830)]
    return [(day - EPOCH.date()).days * 86_400 + offset_s for day in dates]


def check_zone(name: str, unit: Any, offset_s: int = 0) -> None:
    """Compare all panes of a zone with a search through its changes."""
    zone = ZoneInfo(name)
    panes = CalendarPanes(unit, 1, name, offset_s, 1)
    starts = first_seconds(segments(zone), begins(unit, offset_s))
    first = {"days": 1, "weeks": 1, "months": 0}[unit]
    computed = [panes.start(pane) for pane in range(first, first + len(starts))]
    assert computed == starts, name
    random = Random(name)
    near = [
        start + random.choice((-1, 0, 1, random.randrange(-90_000, 90_000))) for start in starts
    ]
    for time in near[2:-2]:
        assert panes.of_time(time) == first - 1 + bisect_right(starts, time), (name, time)


@pytest.mark.parametrize("name", ODD)
def test_days_begin_with_the_first_moment_of_their_date(name: str) -> None:
    check_zone(name, "days")


@pytest.mark.parametrize("unit", ["weeks", "months"])
def test_weeks_begin_with_monday_and_months_with_the_first(unit: str) -> None:
    for name in ODD[:3]:
        check_zone(name, unit)
    check_zone("Pacific/Apia", unit, 1_800)
    check_zone("Europe/Berlin", "days", 9_000)  # half past two, which a change of the clock skips
    check_zone("Europe/Berlin", "days", -9_000)


@pytest.mark.long
@pytest.mark.parametrize("name", ZONES)
def test_days_weeks_and_months_of_every_zone(name: str) -> None:
    check_zone(name, "days")
    check_zone(name, "weeks", 1_800)
    check_zone(name, "months")


def test_the_days_of_changes_have_23_and_25_hours_and_one_is_left_out() -> None:
    def hours(zone: str, day: date) -> float:
        panes = CalendarPanes("days", 1, zone, 0, 1)
        number = (day - date(1970, 1, 1)).days
        return (panes.start(number + 1) - panes.start(number)) / 3_600

    assert [hours("Europe/Berlin", date(2024, 3, day)) for day in (30, 31)] == [24, 23]
    assert hours("Europe/Berlin", date(2024, 10, 27)) == 25
    assert hours("Pacific/Apia", date(2011, 12, 30)) == 0
    assert hours("America/Sao_Paulo", date(2018, 11, 4)) == 23  # it has no midnight
    assert hours("Australia/Lord_Howe", date(2024, 4, 7)) == 24.5


def test_times_of_all_kinds_and_units_are_in_the_same_day() -> None:
    moment = datetime(2024, 10, 27, 0, 0, 0, tzinfo=BERLIN)
    start = int(moment.timestamp())
    for per_s in (1, 1_000, 10**9):
        panes = CalendarPanes("days", 1, "Europe/Berlin", 0, per_s)
        day = panes.of_time(start * per_s)
        assert panes.start(day) == start * per_s
        less = [Decimal(start * per_s) - Decimal("0.001"), start * per_s - 1]
        assert panes.of_times([start * per_s, *less, start * per_s + 3]) == [
            *(day, day - 1, day - 1, day)
        ]
    panes = CalendarPanes("days", 1, "Europe/Berlin", 0, 1)
    assert panes.of_times([start - 1e-6, float(start), start + 0.5]) == [day - 1, day, day]


def test_times_without_a_year_of_a_datetime_are_in_the_first_or_the_last_pane() -> None:
    for unit, length in (("days", 1), ("weeks", 1_000), ("months", 1_000)):
        panes = CalendarPanes(unit, length, "Asia/Kathmandu", 0, 1)  # type: ignore[arg-type]
        first, last = panes.of_time(-(10**30)), panes.of_time(Decimal(10) ** 40)
        assert first < panes.of_time(0) < last
        assert panes.of_time(1e15) == last
        assert panes.start(first - 5) == panes.start(first) < panes.start(first + 1)
        assert panes.start(last) < panes.start(last + 1) == panes.start(last + 7)


def test_many_panes_are_forgotten() -> None:
    panes = CalendarPanes("days", 1, "Europe/Berlin", 0, 1)
    starts = [panes.start(pane) for pane in range(25_000)]
    assert starts == [panes.start(pane) for pane in range(25_000)]
    assert len(panes._starts) <= 10_000


# ---- programs ------------------------------------------------------------------------------------


class Sale(NamedTuple):
    shop: str
    at: datetime
    cents: int


@dataclass
class Sold:
    shop: str
    at: datetime
    cents: int


class Day(NamedTuple):
    shop: str
    window: datetime
    sales: int
    cents: int


class Ended(NamedTuple):
    shop: str
    window: datetime
    sales: int


def rows_of(
    rows: Sequence[Any],
    kind: Any,
    window: Any,
    *aggregators: Any,
    fields: Any = Day,
    state: Any = None,
    tasks: int = 2,
) -> list[Any]:
    topology = Topology("days")
    source = topology.spout("sales", Records(rows, **kind))
    ended = source.group_by("shop").window(
        window, *aggregators, fields=fields, state=state, parallelism=tasks
    )
    ended.global_().bolt("kept", Kept)
    return sorted(run_inline(topology.graph(), clock=ManualClock()).results["kept"][0])


def rows_of_batches(
    rows: Sequence[Any], kind: Any, window: Any, *aggregators: Any, fields: Any = Day
) -> list[Any]:
    topology = Topology("days")
    source = batches(topology, "sales", FixedBatchSpout(rows, 3, **kind), store=InMemory())
    ended = source.group_by("shop").window(
        window, *aggregators, fields=fields, state=MemoryState(), parallelism=2
    )
    ended.records("out").global_().bolt("kept", Kept)
    return sorted(run_inline(topology.graph(), clock=ManualClock()).results["kept"][0])


def local_days(rows: Sequence[Any], zone: ZoneInfo) -> dict[tuple[str, date], list[int]]:
    by_day: dict[tuple[str, date], list[int]] = {}
    for row in rows:
        by_day.setdefault((row.shop, row.at.astimezone(zone).date()), []).append(row.cents)
    return by_day


@seeds(60)
def test_totals_per_local_day_are_those_of_plain_python(seed: int) -> None:
    random = Random(seed)
    name = random.choice(["Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Pacific/Chatham"])
    zone = ZoneInfo(name)
    begin = datetime(2024, random.choice((3, 10)), 20, tzinfo=UTC)
    times = [begin + timedelta(minutes=random.randrange(20 * 24 * 60)) for _ in range(60)]
    if seed % 2:
        times = [time.astimezone(random.choice((zone, BERLIN))) for time in times]
    random.shuffle(times)
    record_type = Sold if seed % 3 == 0 else Sale
    rows = [record_type(random.choice("ab"), time, random.randrange(100)) for time in times]
    window = tumbling(days=1, zone=name, field="at", late=30 * 86_400)
    run = rows_of_batches if seed % 4 == 0 else rows_of
    results = run(rows, {"type": record_type}, window, count(), sum_("cents"))
    expected = [
        Day(shop, midnight(day + timedelta(days=1), zone), len(cents), sum(cents))
        for (shop, day), cents in local_days(rows, zone).items()
    ]
    assert results == sorted(expected)
    assert {row[1].tzinfo for row in results} == {zone}


def midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=zone)


def sale(text: str, cents: int = 1, zone: Any = BERLIN) -> Sale:
    return Sale("a", datetime.fromisoformat(text).replace(tzinfo=zone), cents)


ROWS = [
    *(sale("2024-02-29T23:59:59"), sale("2024-03-01T00:00"), sale("2024-03-31T23:00")),
    *(sale("2024-04-01T00:00"), sale("2024-04-07T23:59"), sale("2024-12-31T23:59")),
]


IN_BERLIN: Any = {"zone": "Europe/Berlin", "field": "at"}


@pytest.mark.parametrize("run", [rows_of, rows_of_batches])
@pytest.mark.parametrize(
    ("window", "ends"),
    [
        (tumbling(months=1, **IN_BERLIN), "03-01 04-01 04-01 05-01 05-01 2025-01-01"),
        (tumbling(months=3, **IN_BERLIN), "04-01 04-01 04-01 07-01 07-01 2025-01-01"),
        (tumbling(weeks=1, **IN_BERLIN), "03-04 03-04 04-01 04-08 04-08 2025-01-06"),
        (
            tumbling(days=1, offset=3_600, **IN_BERLIN),
            "03-01T01 03-01T01 04-01T01 04-01T01 04-08T01 2025-01-01T01",
        ),
        (
            tumbling(days=1, field="at"),
            "03-01T01 03-01T01 04-01T02 04-01T02 04-08T02 2025-01-01T01",
        ),
    ],
)
def test_months_quarters_weeks_and_offsets(run: Any, window: Any, ends: str) -> None:
    expected = Counter(
        datetime.fromisoformat(end if end[:2] == "20" else f"2024-{end}").replace(tzinfo=BERLIN)
        for end in ends.split()
    )
    for kind in ({"type": Sale}, {"fields": Sale._fields}):
        rows = ROWS if "type" in kind else [*map(tuple, ROWS)]
        results = run(rows, kind, window, count(), fields=("shop", "window", "sales"))
        assert [(row[1], row[2]) for row in results] == sorted(expected.items())
        assert {str(row[1].tzinfo) for row in results} == {window.zone}


def test_a_week_slides_by_days_and_a_day_left_out_ends_none() -> None:
    apia = ZoneInfo("Pacific/Apia")
    rows = [sale("2011-12-29T12:00", 1, apia), sale("2011-12-31T12:00", 2, apia)]
    window = sliding(days=3, every=1, zone="Pacific/Apia", field="at")
    results = rows_of(
        rows, {"type": Sale}, window, collect("cents"), fields=("shop", "window", "c")
    )
    by_end = {end.isoformat()[:16]: sorted(cents) for _, end, cents in results}
    assert len(results) == len(by_end)
    assert by_end == {
        "2011-12-31T00:00": [1],
        "2012-01-01T00:00": [1, 2],
        "2012-01-02T00:00": [2],
        "2012-01-03T00:00": [2],
    }


def test_numbers_with_a_unit_have_days_too() -> None:
    class Numbered(NamedTuple):
        shop: str
        at: int

    start = int(datetime(2024, 3, 31, tzinfo=BERLIN).timestamp()) * 1_000
    rows = [Numbered("a", start + n) for n in (-1, 0, 23 * 3_600_000 - 1, 23 * 3_600_000)]
    window = tumbling(days=1, zone="Europe/Berlin", field="at", unit="ms", ahead=None)
    results = rows_of(rows, {"type": Numbered}, window, count(), fields=("shop", "window", "n"))
    days = [datetime(2024, 3, 31, tzinfo=BERLIN) + timedelta(days=n) for n in range(3)]
    assert results == [("a", days[0], 1), ("a", days[1], 2), ("a", days[2], 1)]


def test_naive_times_are_read_in_the_zone_of_the_days() -> None:
    rows = [Sale("a", row.at.replace(tzinfo=None), row.cents) for row in ROWS]
    window = tumbling(months=1, zone="Europe/Berlin", field="at")
    aggregators = (count(), sum_("cents"))
    aware = rows_of(ROWS, {"type": Sale}, window, *aggregators)
    assert rows_of(rows, {"type": Sale}, window, *aggregators) == aware


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_open_days_continue_in_the_next_run(tasks: int, tmp_path: Any) -> None:
    state = SqliteState(tmp_path / "days.db")
    window = tumbling(days=1, zone="Europe/Berlin", field="at", at_end="keep")
    first = [sale("2024-03-30T12:00"), sale("2024-03-31T01:00")]
    arguments: Any = (window, count(), sum_("cents"))
    ends = [row[1] for row in rows_of(first, {"type": Sale}, *arguments, state=state)]
    assert ends == [datetime(2024, 3, 31, tzinfo=BERLIN)]
    then = [sale("2024-03-31T23:30"), sale("2024-04-01T00:00")]
    results = rows_of(then, {"type": Sale}, *arguments, state=state, tasks=tasks)
    assert results == [Day("a", datetime(2024, 4, 1, tzinfo=BERLIN), 2, 2)]


def test_days_of_the_clock_end_as_those_of_event_time() -> None:
    class Slow(Spout[Sale]):
        """Emits two records an hour apart."""

        emits = Sale

        def open(self, context: Context) -> None:
            assert isinstance(context.clock, ManualClock)
            self.clock = context.clock

        def records(self) -> Iterator[Sale | None]:
            for text in ("2024-01-01T00:00", "2024-01-02T00:00"):
                yield sale(text)
                yield None
                self.clock.advance(3_600)

    begin = datetime(2024, 3, 30, 23, 30, tzinfo=BERLIN)
    for window, ends in (
        (tumbling(days=1, zone="Europe/Berlin"), ["2024-03-31T00", "2024-04-01T00"]),
        (tumbling(months=1, zone="Europe/Berlin"), ["2024-04-01T00"]),
        (tumbling(seconds=7_200, offset=3_600), ["2024-03-31T00", "2024-03-31T03"]),
    ):
        topology = Topology("days")
        stream = topology.spout("sales", Slow()).group_by("shop")
        stream.window(window, count(), fields=Ended).global_().bolt("kept", Kept)
        clock = ManualClock(date=begin)
        rows = run_inline(topology.graph(), clock=clock).results["kept"][0]
        assert [row[1].astimezone(BERLIN).isoformat()[:13] for row in rows] == ends
        assert sum(row[2] for row in rows) == 2


# ---- offsets -------------------------------------------------------------------------------------


class Numbered(NamedTuple):
    shop: str
    at: float


@seeds(100)
def test_windows_with_an_offset_are_those_of_plain_python(seed: int) -> None:
    random = Random(seed)
    every = random.choice([1, 2.5, 0.1, 60])
    width = random.choice([1, 1, 3])
    offset = random.choice([0.5, -7, 0.03, 1_000, every])
    kind: Any = random.choice([int, float])
    rows = [Numbered("a", kind(random.uniform(-200, 200))) for _ in range(20)]
    settings: Any = {"field": "at", "late": 1_000, "offset": offset}
    if width == 1:
        window = tumbling(seconds=every, **settings)
    else:
        window = sliding(seconds=exact_product(every, width), every=every, **settings)
    run = rows_of_batches if seed % 4 == 0 else rows_of
    results = run(rows, {"type": Numbered}, window, count(), fields=("shop", "window", "n"))
    expected: Counter[Fraction] = Counter()
    step, shift = (Fraction(str(number)) for number in (every, offset))
    for row in rows:
        pane = (Fraction(str(row.at)) - shift) // step
        expected.update((pane + n + 1) * step + shift for n in range(width))
    assert {Fraction(str(end)): n for _, end, n in results} == expected, f"seed {seed}"


def exact_product(number: float, factor: int) -> float:
    return float(Decimal(str(number)) * factor)


def test_a_window_without_offset_is_declared_as_before() -> None:
    """Stored states are compared with what a window declares."""
    assert type(tumbling(seconds=60, field="at", offset=0)) is Window
    assert type(tumbling(count=5)) is Window
    assert isinstance(tumbling(days=1, field="at"), AlignedWindow)


# ---- several stages ------------------------------------------------------------------------------


class Part(NamedTuple):
    shop: str
    window: datetime
    sales: int


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Pacific/Apia", "America/St_Johns"])
@pytest.mark.parametrize(
    ("first", "then"),
    [({"seconds": 1_800}, "days"), ({"days": 1}, "months"), ({"days": 1}, "weeks")],
)
def test_days_follow_other_windows_and_are_followed_by_them(
    zone: str, first: Any, then: str
) -> None:
    random, begin = Random(f"{zone} {then}"), datetime(2011, 12, 20, tzinfo=UTC)
    times = sorted(begin + timedelta(minutes=random.randrange(30_000)) for _ in range(200))
    rows = [Sale("ab"[n % 2], at, 1) for n, at in enumerate(times)]
    local = ZoneInfo(zone)
    topology = Topology("stages")
    source = topology.spout("sales", Records(rows, type=Sale))
    small = tumbling(**first, field="at", zone=zone)
    parts = source.group_by("shop").window(small, count(), fields=Part, name="parts", parallelism=2)
    large = tumbling(**{then: 1}, field="window", zone=zone)
    ended = parts.group_by("shop").window(large, sum_("sales"), fields=Part, name="ended")
    ended.global_().bolt("kept", Kept)
    ended.late.shuffle().bolt("late", Kept)
    results = run_inline(topology.graph(), clock=ManualClock()).results
    panes = CalendarPanes(then, 1, zone, 0, 1)  # type: ignore[arg-type]
    expected: Counter[Any] = Counter()
    for row in rows:
        end = panes.start(panes.of_time(int(row.at.timestamp())) + 1)
        expected[row.shop, datetime.fromtimestamp(end, local)] += 1
    assert sorted(results["kept"][0]) == sorted((*key, n) for key, n in expected.items())
    assert results["late"] == [[]]


def test_a_window_behind_days_of_numbers_in_milliseconds_is_refused() -> None:
    topology = Topology("stages")
    source = topology.spout("sales", Records([], type=Numbered))
    days = source.window(tumbling(days=1, field="at", unit="ms"), count(), name="days")
    days.window(tumbling(weeks=1, field="window"), count(), name="weeks")
    with pytest.raises(
        TopologyError, match="'days' upstream of it has days of numbers, whose ends"
    ):
        topology.graph()


# ---- refusals ------------------------------------------------------------------------------------


def wrong() -> Iterator[tuple[Any, str]]:
    yield lambda: tumbling(days=1, zone="Europe/Bern"), "is no time zone"
    yield lambda: tumbling(seconds=60, zone="Europe/Berlin"), "zone= needs field="
    yield lambda: tumbling(count=5, offset=5), "offset= is for windows of time"
    yield lambda: tumbling(days=1, weeks=1, field="at"), "give either count=… rows or seconds=…"
    yield lambda: tumbling(field="at"), "give either count=… rows or seconds=…"
    yield lambda: tumbling(days=0, field="at"), "days is 0"
    yield lambda: tumbling(days=1.5, field="at"), "days is 1.5"  # type: ignore[arg-type]
    yield lambda: tumbling(months=1_001, field="at"), "months is 1001"
    yield lambda: tumbling(days=1, field="at", offset=0.5), "a whole number of seconds"
    yield lambda: tumbling(days=1, field="at", offset=4e7), "of less than a year"
    yield lambda: tumbling(days=1, field="at", zone="Europe/Bern"), "is no time zone"
    yield lambda: sliding(days=7, every=2, field="at"), "days=7 is not a multiple of every=2"
    yield lambda: sliding(days=7, every=0.5, field="at"), "give positive whole numbers"
    yield lambda: sliding(months=1, every=2, field="at"), "every=2; give positive whole numbers"


@pytest.mark.parametrize(("declare", "why"), [*wrong()])
def test_wrong_windows_are_refused(declare: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        declare()


def test_a_calendar_of_numbers_without_a_unit_is_refused() -> None:
    source = Topology("days").spout("sales", Records([], type=Numbered))
    window = tumbling(days=1, zone="Europe/Berlin", field="at")
    with pytest.raises(TopologyError, match=r"'at' is a number, and days= needs its unit"):
        source.group_by("shop").window(window, count())


def test_the_end_of_a_day_is_a_datetime_in_the_record_type() -> None:
    class OfNumbers(NamedTuple):
        shop: str
        window: float
        sales: int

    source = Topology("days").spout("sales", Records(ROWS, type=Sale))
    window = tumbling(days=1, field="at")
    with pytest.raises(RecordMismatch, match="window is float, and its values are datetime"):
        source.group_by("shop").window(window, count(), fields=OfNumbers)
    with pytest.raises(TypeError, match="offset"):
        sessions(gap=5, field="at", offset=5)  # type: ignore[call-arg]
