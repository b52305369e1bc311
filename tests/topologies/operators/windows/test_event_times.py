"""Event times of every type: exact arithmetic, the same windows on both kinds of stream."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from math import floor, inf, nan
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower import (
    KeyState,
    Records,
    Retry,
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
from sunshower.errors import BadEmit, RecordMismatch, TopologyFailed
from sunshower.simulation import SimCluster
from sunshower.state import MemoryState, SqliteState
from sunshower.topologies.operators.windows.event_times import (
    Panes,
    TimeReader,
    excess,
    highest,
    is_before,
    lowest,
    minus,
    plus,
)
from sunshower.topologies.operators.windows.window_kinds import AnyWindow
from sunshower.trident import Aggregator, Attempt, FixedBatchSpout, InMemory, batches
from tests.seeds import seeds
from tests.topologies.operators.kinds import Kept
from tests.trident.rigs.one_process import Runner, StateStub, collected, stub_stream

MINUTE_NS = 60_000_000_000
MICROSECOND = timedelta(microseconds=1)
BEGIN_NS = 28_333_333 * MINUTE_NS
READER = TimeReader("the time", lambda value: value, None)

LENGTHS = [1, 60, 0.1, 0.3, 7, 0.25, 1e-3, MINUTE_NS, 1 / 3, 2.5e-7, 1e15, 86400.0]


def number_of(choice: Random) -> Any:
    """A number of any type and size that can be an event time."""
    digits = choice.randrange(-(10**25), 10**25)
    return choice.choice(
        [
            choice.randrange(-(10**4), 10**4),
            digits,
            10**300 + digits,
            float(choice.randrange(-(10**4), 10**4)),
            choice.randrange(-(10**4), 10**4) / 10,
            1_700_000_000 + choice.randrange(10**7) / 1000,
            choice.uniform(-1e3, 1e3),
            choice.uniform(-1, 1) * 10.0 ** choice.randrange(-30, 30),
            Decimal(choice.randrange(-(10**4), 10**4)) / 8,
            Decimal(digits).scaleb(-choice.randrange(50)),
        ]
    )


class Row(NamedTuple):
    k: str
    at: Any


class Ended(NamedTuple):
    k: str
    ended: datetime
    number: int


def as_fraction(number: Any) -> Fraction:
    """The number that a time stands for: a float for its shortest decimal."""
    return Fraction(repr(float(number))) if isinstance(number, float) else Fraction(number)


# ---- arithmetic ----------------------------------------------------------------------------------


@seeds(40)
def test_arithmetic_with_times_is_that_of_fractions(seed: int) -> None:
    choice = Random(seed)
    for _ in range(400):
        check_arithmetic([number_of(choice) for _ in range(4)], choice.choice(LENGTHS))


@pytest.mark.parametrize("kind", [int, float, Decimal])
def test_arithmetic_with_times_of_one_type_is_that_of_fractions(kind: type[Any]) -> None:
    choice = Random(7)
    numbers = [number_of(choice) for _ in range(800)]
    numbers = [number for number in numbers if type(number) is kind]
    for length in LENGTHS:
        check_arithmetic(numbers, length)


def check_arithmetic(numbers: list[Any], length: float) -> None:
    times = READER.of_values(numbers)
    expected = [*map(as_fraction, numbers)]
    assert [*map(as_fraction, times)] == expected
    panes, size = Panes(length), as_fraction(length)
    places = [floor(number / size) for number in expected]
    assert panes.of_times(times) == [*map(panes.of_time, times)] == places
    assert [panes.split(time)[0] for time in times] == places
    assert as_fraction(panes.start(places[0])) == places[0] * size
    assert as_fraction(lowest(times)) == min(expected)
    assert as_fraction(highest(times)) == max(expected)
    first, second = times[:2]
    assert as_fraction(plus(first, second)) == expected[0] + expected[1]
    assert as_fraction(minus(first, second)) == expected[0] - expected[1]
    assert is_before(first, second) == (expected[0] < expected[1])
    difference, actual = expected[1] - expected[0] - size, excess(first, second, length)
    assert ((actual > 0) - (actual < 0)) == ((difference > 0) - (difference < 0))


def test_a_datetime_is_its_microseconds() -> None:
    choice = Random(3)
    begin, epoch = datetime(1, 1, 3, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)
    range_us = (datetime(9999, 12, 29, tzinfo=UTC) - begin) // MICROSECOND
    for length in (60, 0.1, 1e-6, 86400):
        moments = [begin + choice.randrange(range_us) * MICROSECOND for _ in range(100)]
        moments += [epoch + choice.randrange(10**17) // 10**6 * MICROSECOND for _ in range(100)]
        zone = timezone(timedelta(hours=choice.randrange(-14, 14)))
        moments = [moment.astimezone(zone) for moment in moments]
        micros = [(moment - epoch) // MICROSECOND for moment in moments]
        panes = [floor(Fraction(us, 10**6) / as_fraction(length)) for us in micros]
        for times in (READER.of_values(moments[100:]), [*map(READER.of_value, moments)]):
            count_of_times = len(times)
            expected = [Fraction(us, 10**6) for us in micros[-count_of_times:]]
            assert [*map(as_fraction, times)] == expected
            assert Panes(length).of_times(times) == panes[-count_of_times:]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(-5), -5),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.float32(0.1), Fraction("0.10000000149011612")),
        (np.float64(0.1), Fraction(1, 10)),
        (np.bool_(True), 1),
        (True, 1),
        (1.7e18, 17 * 10**17),
        (1e23, 10**23),
        (10**400, 10**400),
        (Decimal("1E+30"), 10**30),
        (date(2024, 1, 1), 1_704_067_200),
        (np.datetime64("2024-01-01"), 1_704_067_200),
        (np.datetime64("2024-01"), 1_704_067_200),
        (np.datetime64("2024-01-01T00:00:00.123456789"), Fraction("1704067200.123456789")),
        (pd.Timestamp("2024-01-01T00:00:00.123456789Z"), Fraction("1704067200.123456789")),
    ],
)
def test_a_value_is_the_same_time_in_any_type(value: Any, expected: Any) -> None:
    assert as_fraction(READER.of_value(value)) == expected
    assert as_fraction(READER.of_values([value, 3])[0]) == expected


@pytest.mark.parametrize(
    "value",
    [
        *("5", None, nan, inf, 10**1001, Decimal("NaN"), Decimal("1E+5000"), Decimal("1E-5000")),
        *(np.datetime64("NaT"), pd.NaT, np.array([1]), Fraction(1, 3), 1j, timedelta(1)),
    ],
)
def test_other_values_are_refused(value: Any) -> None:
    for read in (READER.of_value, lambda time: READER.of_values([time])):
        with pytest.raises(BadEmit, match=r"the time: .* is no event time"):
            read(value)


# ---- windows of both kinds of stream -------------------------------------------------------------


def sources(kind: str, topology: Topology, rows: Sequence[Row]) -> Any:
    if kind == "batches":
        return batches(topology, "in", FixedBatchSpout(rows, 3, type=Row), store=InMemory())
    return topology.spout("in", Records(rows, type=Row))


def emitted(
    kind: str, rows: Sequence[Row], assemble: Callable[[Any, dict[str, Any]], Any]
) -> list[Any]:
    """What a stream emits that `assemble` makes of an ordinary stream or of batches, and settings
    of its state."""
    topology = Topology("times")
    settings = {"state": MemoryState()} if kind == "batches" else {}
    stream = assemble(sources(kind, topology, rows), settings)
    if kind == "batches":
        kept: list[Any] = []
        stream.peek(kept.append)
        run_inline(topology.graph(), clock=ManualClock())
        return [*map(tuple, kept)]
    stream.shuffle().bolt("kept", Kept)
    return list(run_inline(topology.graph(), clock=ManualClock()).results["kept"][0])


def windows(
    kind: str, rows: Sequence[Row], window: AnyWindow, *aggregators: Any, **more: Any
) -> list[Any]:
    """The rows of a window over an ordinary stream or over batches, sorted."""

    def assemble(stream: Any, settings: dict[str, Any]) -> Any:
        return stream.group_by("k").window(window, *aggregators, **more, **settings)

    return sorted(emitted(kind, rows, assemble))


BOTH = pytest.mark.parametrize("kind", ["ordinary", "batches"])


@BOTH
def test_the_last_nanosecond_of_a_minute_is_in_it(kind: str) -> None:
    times = [BEGIN_NS, BEGIN_NS + MINUTE_NS - 1, BEGIN_NS + MINUTE_NS, BEGIN_NS + 5 * MINUTE_NS]
    window = tumbling(seconds=MINUTE_NS, field="at")
    results = windows(kind, [Row("a", time) for time in times], window, collect("at"))
    ends = [BEGIN_NS + MINUTE_NS, BEGIN_NS + 2 * MINUTE_NS]
    assert results[:2] == [("a", ends[0], times[:2]), ("a", ends[1], times[2:3])]


@BOTH
@pytest.mark.parametrize("number", [float, lambda tenth: Decimal(repr(tenth))])
def test_each_tenth_is_in_a_window_of_a_tenth(kind: str, number: Callable[[float], Any]) -> None:
    rows = [Row("a", number(tenth / 10)) for tenth in range(60)]
    results = windows(kind, rows, tumbling(seconds=0.1, field="at"), count())
    assert results[:50] == [("a", (tenth + 1) / 10, 1) for tenth in range(50)]
    assert all(type(row[1]) is float for row in results)


SECONDS = [0, 12, 59, 60, 61, 119, 300, 400]
KINDS: dict[str, Callable[[int], Any]] = {
    "int": int,
    "float": float,
    "int64": np.int64,
    "float32": np.float32,
    "Decimal": Decimal,
    "datetime": lambda second: datetime.fromtimestamp(second, UTC),
    "datetime64": lambda second: np.datetime64(second, "s"),
    "Timestamp": lambda second: pd.Timestamp(second, unit="s", tz="UTC"),
}


@BOTH
@pytest.mark.parametrize("type_of_time", KINDS)
def test_a_time_of_any_type_is_in_the_same_window(kind: str, type_of_time: str) -> None:
    rows = [Row("a", KINDS[type_of_time](second)) for second in SECONDS]
    results = windows(kind, rows, sliding(seconds=120, every=60, field="at"), count())
    expected = Counter(end for s in SECONDS for end in (s // 60 * 60 + 60, s // 60 * 60 + 120))
    assert results[:3] == [("a", end, expected[end]) for end in sorted(expected)[:3]]


@BOTH
def test_a_date_is_midnight(kind: str) -> None:
    rows = [Row("a", date(2024, 3, day)) for day in (30, 31, 31)] + [Row("a", date(2024, 4, 9))]
    midnight = int(datetime(2024, 3, 30, tzinfo=UTC).timestamp())
    results = windows(kind, rows, tumbling(seconds=86400, field="at"), count())
    assert results[:2] == [("a", midnight + 86400, 1), ("a", midnight + 2 * 86400, 2)]
    window = tumbling(seconds=3600, field="at", zone="Europe/Berlin")  # +1, and +2 from the 31st on
    ends = [row[1] for row in windows(kind, rows, window, count())[:2]]
    assert ends == [midnight, midnight + 86400]


@BOTH
@given(st.lists(st.integers(-9, 9), min_size=2, max_size=12))
def test_records_are_in_order_also_if_a_float_cannot_tell_their_times_apart(
    kind: str, places: list[int]
) -> None:
    """Of such times one is a float, and the others are Decimals beside it."""
    base, step = Decimal("1700000000.12345"), Decimal("0.00000001")
    rows = [Row("a", base + place * step) for place in places]

    def assemble(stream: Any, settings: dict[str, Any]) -> Any:
        return stream.group_by("k").in_order("at", late=1).process(numbered, **settings)

    def numbered(row: Row, state: KeyState[int]) -> Iterator[Row]:
        state.value = (state.value or 0) + 1
        yield Row(f"{state.value:02}", row.at)

    in_order = [at for _, at in sorted(emitted(kind, rows, assemble))]
    assert in_order == sorted(row.at for row in rows)


@BOTH
@pytest.mark.parametrize(
    ("ttl", "times"),
    [
        (0.2, [tenth / 10 for tenth in range(1, 8)]),
        (0.2, [Decimal("1e9") + Decimal(tenth) / 10 + Decimal("1e-9") for tenth in range(1, 8)]),
        (2, [BEGIN_NS + ns for ns in range(1, 8)]),
        (2.0, [BEGIN_NS + ns for ns in range(1, 8)]),
        (2e-6, [datetime(2024, 1, 1, microsecond=micro, tzinfo=UTC) for micro in range(1, 8)]),
    ],
)
def test_a_key_is_new_exactly_after_its_time(kind: str, ttl: float, times: list[Any]) -> None:
    def assemble(stream: Any, settings: dict[str, Any]) -> Any:
        return stream.distinct("k", ttl_s=ttl, event_time="at", **settings)

    rows = emitted(kind, [Row("a", time) for time in times], assemble)
    assert sorted(at for _, at in rows) == times[::2]


@BOTH
@pytest.mark.parametrize("ahead", ["auto", None])
@pytest.mark.parametrize("is_moved", [False, True])
def test_a_unit_is_that_of_numbers_alone(kind: str, ahead: Any, is_moved: bool) -> None:
    def assemble(stream: Any, settings: dict[str, Any]) -> Any:
        if is_moved:  # behind a stage
            first = tumbling(seconds=1, field="at", ahead=None)
            stream = stream.group_by("k").window(first, count(), name="first", **settings)
            stream = stream.map(begin_of)
        days = tumbling(days=1, field="at", unit="ms", ahead=ahead)
        return stream.group_by("k").window(days, count(), **settings)

    with pytest.raises(TopologyFailed, match=r"is a datetime, .* and unit='ms' is for numbers"):
        emitted(kind, [Row("a", 5 if is_moved else datetime(2024, 1, 1, tzinfo=UTC))], assemble)


@BOTH
def test_the_ends_of_windows_of_milliseconds_are_declared_as_numbers(kind: str) -> None:
    window = tumbling(seconds=60_000, field="at", unit="ms")
    with pytest.raises(RecordMismatch, match=r"Ended\.ended is datetime, and its values are int"):
        windows(kind, [Row("a", 1_704_067_200_000)], window, count(), fields=Ended)
    with pytest.raises(TopologyFailed, match=r"is a datetime, .* and unit='ms' is for numbers"):
        emitted(kind, [Row("a", 1)], with_timer)


def with_timer(stream: Any, settings: dict[str, Any]) -> Any:
    def process(row: Row, state: KeyState[int]) -> None:
        state.timer = datetime(2024, 1, 1, tzinfo=UTC)

    def on_timer(k: str, state: KeyState[int]) -> Iterator[Row]:
        yield Row(k, state.time)

    timed: Any = {"on_timer": on_timer, "event_time": "at", "unit": "ms", "ahead": None}
    return stream.group_by("k").process(process, **timed, **settings)


def begin_of(row: Any) -> Row:
    return Row(row[0], datetime(2024, 1, 1, tzinfo=UTC))


@BOTH
@pytest.mark.parametrize("number", [float, Decimal, np.int64, np.float32])
def test_days_of_numbers_need_their_unit_also_if_their_type_is_not_declared(
    kind: str, number: Callable[[int], Any]
) -> None:
    rows = [Row("a", date(2024, 1, 1)), Row("a", number(1_704_067_200_000))]
    with pytest.raises(TopologyFailed, match="a number, and days= of the window needs its unit"):
        windows(kind, rows, tumbling(days=1, field="at"), count())
    in_units = windows(kind, rows[1:], tumbling(days=1, field="at", unit="ms"), count())
    assert [row[1].year for row in in_units] == [2024]


def test_sessions_of_tenths_end_exactly() -> None:
    rows = [Row("a", tenth / 10) for tenth in (1, 2, 3, 5, 6, 7, 9)]
    results = windows("ordinary", rows, sessions(gap=0.1, field="at", late=9), count())
    assert results == [("a", (tenth + 1) / 10, 1) for tenth in (1, 2, 3, 5, 6, 7, 9)]
    results = windows("ordinary", rows, sessions(gap=0.2, field="at", late=9), count())
    assert results == [("a", 0.5, 3), ("a", 0.9, 3), ("a", 1.1, 1)]


class Other(NamedTuple):
    k: str
    on: Any


@pytest.mark.parametrize("unit", [0.1, 1, 10**18 + 1, Decimal("0.1")])
def test_a_join_pairs_what_is_exactly_within(unit: Any) -> None:
    """Times are multiples of a unit; a float is the one that is nearest to the decimal."""
    multiple = (lambda n: n / 10) if unit == 0.1 else (lambda n: n * unit)
    within = 0.3 if unit in (0.1, Decimal("0.1")) else 3 * (unit if unit == 1 else 1)
    step = 1 if unit in (0.1, 1, Decimal("0.1")) else 0
    lefts = [Row("a", multiple(n)) if step else Row("a", unit + n) for n in range(12)]
    rights = [Other("a", multiple(n)) if step else Other("a", unit + n) for n in range(12)]
    topology = Topology("join")
    left = topology.spout("left", Records(lefts, type=Row))
    right = topology.spout("right", Records(rights, type=Other))
    pairs = left.join(right, "k", within=within, field="at", other_field="on", late=10)
    pairs.shuffle().bolt("kept", Kept)
    (rows,) = run_inline(topology.graph(), clock=ManualClock()).results["kept"]
    assert len(rows) == sum(abs(i - j) <= 3 for i in range(12) for j in range(12))


@pytest.mark.parametrize("number", [np.int64, np.float32, np.uint8])
def test_records_with_numbers_of_numpy_are_stored_on_any_worker(number: Any) -> None:
    """Between workers they become numbers of Python; in one process they stay as they are."""
    topology = Topology("numpy")
    left = topology.spout("left", Records([Row("a", number(n)) for n in range(9)], type=Row))
    right = topology.spout("right", Records([Other("a", number(n)) for n in range(9)], type=Other))
    pairs = left.join(right, "k", within=2, field="at", other_field="on", late=10)
    pairs.shuffle().bolt("pairs", Kept)
    grouped = left.group_by("k")
    grouped.window(sessions(gap=5, field="at"), collect("at")).shuffle().bolt("sessions", Kept)
    results = run_inline(topology.graph(), clock=ManualClock()).results
    assert len(results["pairs"][0]) == sum(abs(i - j) <= 2 for i in range(9) for j in range(9))
    assert [(row[1], sorted(row[2])) for row in results["sessions"][0]] == [(13, [*range(9)])]


def add(row: Row, state: KeyState[int]) -> None:
    state.value = (state.value or 0) + 1
    state.timer = state.time + 1


def emit(key: str, state: KeyState[int]) -> Iterator[tuple[str, int, float]]:
    yield key, state.value or 0, state.time


class Minutes(Spout[Row]):
    """Emits nanoseconds around the end of a minute, one a second, and then nothing for long."""

    def open(self, context: Any) -> None:
        self.clock = context.clock

    def records(self) -> Iterator[Row | None]:
        begun_s = self.clock.now()
        for number, time in enumerate([0, MINUTE_NS - 2, MINUTE_NS - 1, MINUTE_NS]):
            while self.clock.now() < begun_s + number:
                yield None
            yield Row("a", BEGIN_NS + time)
        while self.clock.now() < begun_s + 9:
            yield None


def test_watermarks_of_nanoseconds_are_exact_between_tasks() -> None:
    """A window and a timer end when the last nanosecond before them has come, and not before."""
    topology = Topology("exact", workers=3)
    source = topology.spout("in", Minutes())
    window = source.group_by("k").window(tumbling(seconds=MINUTE_NS, field="at"), count())
    window.shuffle().bolt("windows-kept", Noted)
    timers = source.group_by("k").process(
        add, on_timer=emit, event_time="at", fields=("k", "n", "at"), parallelism=2
    )
    timers.shuffle().bolt("timers-kept", Noted)
    with SimCluster(5) as cluster:
        run = cluster.submit(topology.graph())
        assert run.wait(60)
        ((at, row),) = [record for part in run.results("windows-kept") for record in part][:1]
        timed = [record for part in run.results("timers-kept") for record in part]
    assert row == ("a", BEGIN_NS + MINUTE_NS, 3)
    assert 2.9 < at < 5
    assert timed[0][1] == ("a", 2, BEGIN_NS + MINUTE_NS - 1) or timed[0][1][1] in (1, 2, 3, 4)
    assert [record[1][2] - BEGIN_NS for record in timed][-1] == MINUTE_NS + 1


class Noted(Kept):
    """Returns its records, and when they came, from the start of the task."""

    def prepare(self, context: Any) -> None:
        super().prepare(context)
        self.clock, self.begun_s = context.clock, context.clock.now()

    def process(self, record: Any) -> None:
        self.rows.append((self.clock.now() - self.begun_s, tuple(record)))


def test_numbers_of_numpy_hold_windows_back_on_any_worker() -> None:
    """A spout task that ignored them would send no watermark but at the end."""

    def numbers() -> Iterator[Row | None]:
        for number in range(200):
            yield Row("a", np.int64(number))
            yield None
        while True:
            yield None

    topology = Topology("numpy", workers=3)
    source = topology.spout("in", Records(numbers, type=Row))
    same = source.shuffle().bolt("same", lambda row: [row], parallelism=2, fields=Row)
    rows = same.group_by("k").window(tumbling(seconds=60, field="at"), count())
    rows.shuffle().bolt("kept", Kept)
    with SimCluster(3) as cluster:
        run = cluster.submit(topology.graph())
        run.wait(20)
        assert run.snapshot().component("kept").acked == 3


def test_a_value_that_is_no_time_fails_its_record_alone() -> None:
    rows = [Row("a", 1), Row("a", "noon"), Row("a", 10**1001), Row("a", np.datetime64("NaT"))]
    topology = Topology("bad")
    retry = Retry(attempts=1, dead_letters=True)
    source = topology.spout("in", Records(rows, type=Row), retry=retry)
    source.group_by("k").window(tumbling(seconds=60, field="at"), count()).shuffle().bolt(
        "kept", Kept
    )
    source.stream("dead_letters").shuffle().bolt("letters", Kept)
    done = run_inline(topology.graph(), clock=ManualClock())
    assert done.results["kept"] == [[("a", 60, 1)]]
    assert len(done.results["letters"][0]) == 3


def test_a_length_may_be_a_number_of_numpy() -> None:
    assert repr(tumbling(count=np.int64(3))) == repr(tumbling(count=3))
    days = sliding(days=np.int64(7), every=np.int8(1), field="at")
    assert repr(days) == repr(sliding(days=7, every=1, field="at"))


def test_a_window_of_ints_slides_by_whole_parts_only() -> None:
    with pytest.raises(Exception, match="not a multiple"):
        sliding(seconds=10**18, every=10**9 - 1, field="at")
    assert sliding(seconds=0.3, every=0.1, field="at").panes == 3


# ---- states that were stored before -------------------------------------------------------------


class Click(NamedTuple):
    user: str
    at: float


class Times(Aggregator[Click, list[float]]):
    fields = ("times",)

    def init(self, attempt: Attempt) -> list[float]:
        return []

    def aggregate(self, state: list[float], record: Click) -> None:
        state.append(record.at)

    def complete(self, state: list[float]) -> Iterator[tuple[list[float]]]:
        yield (list(state),)


def continued(path: Path) -> dict[str, list[Any]]:
    """Run the program whose states are in float_times.sql, with further rows."""
    topology = Topology("old")
    floats = topology.spout("floats", Records([Row("a", n / 10) for n in (11, 12, 30)], type=Row))
    minute = datetime(2024, 6, 1, 12, 1)  # noqa: DTZ001
    locals_ = [Row("a", minute + timedelta(seconds=s)) for s in (1, 59, 200)]
    naive = topology.spout("locals", Records(locals_, type=Row)).group_by("k")
    lefts = topology.spout("lefts", Records([Row("a", 1.1), Row("a", 9.0)], type=Row))
    rights = topology.spout("rights", Records([Other("a", 1.3), Other("a", 9.1)], type=Other))

    def later(row: Row, state: KeyState[int]) -> None:
        state.value = (state.value or 0) + 1
        state.timer = state.time + 0.3

    def fire(key: str, state: KeyState[int]) -> Iterator[tuple[str, int]]:
        yield key, state.value or 0

    def stored(name: str) -> dict[str, Any]:
        return {"state": SqliteState(path), "name": name}

    grouped, zone = floats.group_by("k"), {"field": "at", "zone": "UTC"}
    streams: dict[str, Any] = {
        "tumbling": grouped.window(
            tumbling(seconds=0.5, field="at"), collect("at"), **stored("tumbling")
        ),
        "sliding": grouped.window(
            sliding(seconds=1.5, every=0.5, field="at"), collect("at"), **stored("sliding")
        ),
        "sessions": grouped.window(
            sessions(gap=0.5, field="at"), collect("at"), **stored("sessions")
        ),
        "naive": naive.window(tumbling(seconds=60, **zone), count(), **stored("naive")),
        "naive-sessions": naive.window(
            sessions(gap=60, **zone), count(), **stored("naive-sessions")
        ),
        "join": lefts.join(rights, "k", within=0.5, field="at", other_field="on", **stored("join")),
        "timers": grouped.process(
            later, on_timer=fire, event_time="at", fields=("k", "n"), **stored("timers")
        ),
    }
    for name, stream in streams.items():
        stream.shuffle().bolt(f"kept-{name}", Kept)
    results = run_inline(topology.graph(), clock=ManualClock()).results
    return {name: sorted(results[f"kept-{name}"][0]) for name in streams}


def test_states_with_float_times_are_continued(tmp_path: Path) -> None:
    """`float_times.sql` was written before times were exact, in a process whose zone was UTC."""
    path = tmp_path / "old.db"
    script = (Path(__file__).parent / "float_times.sql").read_text()
    with sqlite3.connect(path) as database:
        database.executescript(script)
    database.close()
    results = continued(path)
    assert [(row[1], sorted(row[2])) for row in results["tumbling"]] == [
        (1.0, [0.7, 0.8, 0.9]),
        (1.5, [1.1, 1.2]),
        (3.5, [3.0]),
    ]
    assert (1.5, [0.1, 0.2, 0.7, 0.8, 0.9, 1.1, 1.2]) in [
        (row[1], sorted(row[2])) for row in results["sliding"]
    ]
    assert [(row[1], sorted(row[2])) for row in results["sessions"]] == [
        (1.7, [0.7, 0.8, 0.9, 1.1, 1.2]),
        (3.5, [3.0]),
    ]
    noon = int(datetime(2024, 6, 1, 12, tzinfo=UTC).timestamp())
    # the minute that was open has one record of the first run, and two of this one
    assert [row[1:] for row in results["naive"]] == [(noon + 120, 3), (noon + 300, 1)]
    assert [row[1:] for row in results["naive-sessions"]] == [(noon + 179, 5), (noon + 320, 1)]
    assert {row[1:] for row in results["join"]} >= {(1.1, 1.2), (0.9, 1.3), (1.1, 1.3), (9.0, 9.1)}
    assert results["timers"][-1] == ("a", 8)


def test_windows_of_a_number_are_continued(tmp_path: Path) -> None:
    """`count_windows.sql` was written when the panes of a group were one value."""
    path = tmp_path / "old.db"
    script = (Path(__file__).parent / "count_windows.sql").read_text()
    with sqlite3.connect(path) as database:
        database.executescript(script)
    database.close()
    topology = Topology("clicks")
    clicks = topology.spout("clicks", Records([Click("a", 14.0), Click("a", 16.0)], type=Click))
    for name, aggregator in {"counted": sum_("at"), "listed": Times()}.items():
        window = sliding(count=6, every=3)
        state = SqliteState(path)
        ended = clicks.group_by("user").window(window, aggregator, state=state, name=name)
        ended.shuffle().bolt(f"kept-{name}", Kept)
    results = run_inline(topology.graph(), clock=ManualClock()).results
    assert results["kept-counted"][0] == [("a", 2, 24.0 + 42.0)]
    assert results["kept-listed"][0] == [("a", 2, [6.0, 8.0, 10.0, 12.0, 14.0, 16.0])]
    with closing(sqlite3.connect(path)) as database:
        keys = [key for (key,) in database.execute("SELECT key FROM listed")]
    assert '["rows","a",1]' not in keys, "a pane that no window needs is removed"


def test_windows_of_batches_with_float_times_are_continued() -> None:
    topology, stream = stub_stream(Row)
    state = StateStub()
    old = {"time": 1.2, "late": 0, "fired": [["a", 0.5, 2]]}
    groups = [["a", 0, [[0, [2]], [1, [3]], [2, [1]]]]]
    state.values[0, "$windows"] = (0, {**old, "groups": groups}, None)
    window = sliding(seconds=1.5, every=0.5, field="at", late=0.5)
    results = collected(stream.group_by("k").window(window, count(), state=state))
    Runner(topology).batch([Row("a", 1.3), Row("a", 0.4), Row("a", Decimal("3.5"))])
    assert results == [("a", 1.0, 6), ("a", 1.5, 8), ("a", 2.0, 5), ("a", 2.5, 2)]
