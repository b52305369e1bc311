"""Datetimes without a zone: they end the topology, or are read in the declared zone."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from functools import partial
from random import Random
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from sunshower import (
    KeyState,
    Records,
    Retry,
    Spout,
    Topology,
    count,
    run_inline,
    sessions,
    sliding,
    tumbling,
)
from sunshower.clock import ManualClock
from sunshower.errors import ConfigError, TopologyError, TopologyFailed
from sunshower.simulation import SimCluster
from sunshower.state import MemoryState
from sunshower.topologies.operators.windows.event_times import TimeReader, as_datetime
from sunshower.trident import FixedBatchSpout, InMemory, batches
from tests.seeds import seeds
from tests.topologies.operators.kinds import Kept

BERLIN = "Europe/Berlin"
NAIVE = datetime(2024, 6, 1, 12)  # noqa: DTZ001
AWARE = datetime(2024, 6, 1, 12, tzinfo=UTC)


class Row(NamedTuple):
    k: str
    at: Any


class Other(NamedTuple):
    k: str
    on: Any


class Tables(Spout[Row]):
    """The rows as one Arrow table."""

    emits = Row

    def __init__(self, times: Sequence[Any]) -> None:
        self.times = times

    def tables(self) -> Iterator[pa.Table]:
        yield pa.table({"k": ["a"] * len(self.times), "at": pa.array(self.times)})


class WithMethod(Records[Row]):
    """Its records have a datetime without a zone."""

    def event_time(self, row: Row) -> Any:
        return row.at


class Unzoned(tzinfo):
    """A zone that gives no offset, so datetimes with it are naive."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return None


def run(topology: Topology, name: str = "kept") -> list[Any]:
    return sorted(run_inline(topology.graph(), clock=ManualClock()).results[name][0])


def set_timer(row: Row, state: KeyState[int]) -> None:
    state.timer = NAIVE + timedelta(minutes=1)  # type: ignore[assignment]


def fire(key: str, state: KeyState[int]) -> Iterator[tuple[str, float]]:
    yield key, state.time


def window(topology: Topology, zone: str | None, spout: Any = None) -> Any:
    source = topology.spout("in", spout or Records([Row("a", NAIVE)], type=Row))
    return source.group_by("k").window(tumbling(seconds=60, field="at", zone=zone), count())


def of_sessions(topology: Topology, zone: str | None) -> Any:
    source = topology.spout("in", Records([Row("a", NAIVE)], type=Row))
    return source.group_by("k").window(sessions(gap=60, field="at", zone=zone), count())


def of_tables(topology: Topology, zone: str | None) -> Any:
    return window(topology, zone, Tables([NAIVE]))


def of_a_method(topology: Topology, zone: str | None) -> Any:
    return window(topology, zone, WithMethod([Row("a", NAIVE)], type=Row))


def of_pandas(topology: Topology, zone: str | None) -> Any:
    return window(topology, zone, Records([Row("a", pd.Timestamp(NAIVE))], type=Row))


def of_a_zone_without_offset(topology: Topology, zone: str | None) -> Any:
    rows = [Row("a", NAIVE.replace(tzinfo=Unzoned()))]
    return window(topology, zone, Records(rows, type=Row))


def of_a_join(topology: Topology, zone: str | None) -> Any:
    left = topology.spout("left", Records([Row("a", AWARE)], type=Row))
    right = topology.spout("in", Records([Other("a", NAIVE)], type=Other))
    return left.join(right, "k", within=60, field="at", other_field="on", other_zone=zone)


def of_event_timers(topology: Topology, zone: str | None) -> Any:
    source = topology.spout("in", Records([Row("a", NAIVE)], type=Row))
    return source.group_by("k").process(
        set_timer, on_timer=fire, event_time="at", zone=zone, fields=("k", "at")
    )


def of_timers(topology: Topology, zone: str | None) -> Any:
    source = topology.spout("in", Records([Row("a", AWARE)], type=Row))
    return source.group_by("k").process(set_timer, on_timer=fire, zone=zone, fields=("k", "at"))


def of_batches(topology: Topology, zone: str | None) -> Any:
    rows = [Row("a", NAIVE), Row("a", NAIVE + timedelta(hours=1))]
    source = batches(topology, "in", FixedBatchSpout(rows, 1, type=Row), store=InMemory())
    kind = sliding(seconds=60, every=30, field="at", zone=zone)
    counts = source.group_by("k").window(kind, count(), state=MemoryState())
    return counts.records("records")


NAMES = {
    window: "field 'at' of spout 'in'",
    of_sessions: "field 'at' of spout 'in'",
    of_tables: "field 'at' of spout 'in'",
    of_a_method: r"event_time\(\) of spout 'in'",
    of_pandas: "field 'at' of spout 'in'",
    of_a_zone_without_offset: "field 'at' of spout 'in'",
    of_a_join: "field 'on' of spout 'in'",
    of_event_timers: "field 'at' of spout 'in'",
    of_timers: "the timer of a state",
    of_batches: "field 'at' of a row of spout 'in'",
}


@pytest.mark.parametrize("declare", NAMES)
def test_a_datetime_without_a_zone_ends_the_topology(declare: Callable[..., Any]) -> None:
    topology = Topology("naive")
    declare(topology, None)
    message = rf"{NAMES[declare]} is datetime.datetime\(2024, 6, 1, 12, .*no time zone.*zone="
    with pytest.raises(TopologyFailed, match=message):
        run_inline(topology.graph(), clock=ManualClock())


@pytest.mark.parametrize("declare", [kind for kind in NAMES if kind not in (of_batches, of_timers)])
def test_the_remedy_of_the_error_works(declare: Callable[..., Any]) -> None:
    topology = Topology("zoned")
    declare(topology, "UTC").shuffle().bolt("kept", Kept)
    assert len(run(topology)) == 1


def test_windows_of_batches_and_timers_of_the_clock_take_a_zone() -> None:
    topology = Topology("zoned")
    of_batches(topology, BERLIN)
    run_inline(topology.graph(), clock=ManualClock())
    topology = Topology("timers")
    of_timers(topology, BERLIN).shuffle().bolt("kept", Kept)
    assert run(topology) == [("a", (AWARE - timedelta(hours=2, minutes=-1)).timestamp())]


@pytest.mark.parametrize("declare", [window, of_batches])
def test_it_ends_a_topology_of_several_processes_without_dead_letters(
    declare: Callable[..., Any],
) -> None:
    topology = Topology("naive", workers=3)
    if declare is window:
        dead = Retry(attempts=1, dead_letters=True)
        source = topology.spout("in", Records([Row("a", NAIVE)] * 50, type=Row), retry=dead)
        source.group_by("k").window(tumbling(seconds=60, field="at"), count(), parallelism=2)
        source.stream("dead_letters").shuffle().bolt("letters", Kept)
    else:
        declare(topology, None)
    error = pytest.raises(TopologyFailed, match=r"has no time zone.*zone=")
    with SimCluster(2) as cluster, error:
        cluster.submit(topology.graph()).wait(100)


def local_times(begin: datetime, hours: int) -> list[datetime]:
    """Each quarter of an hour of a day, also those that do not occur, with both folds."""
    quarters = [begin + timedelta(minutes=15 * n) for n in range(4 * hours)]
    return [quarter.replace(fold=fold) for quarter in quarters for fold in (0, 1)]


TRANSITIONS = [
    (BERLIN, datetime(2024, 3, 31)),  # noqa: DTZ001
    (BERLIN, datetime(2024, 10, 27)),  # noqa: DTZ001
    ("America/New_York", datetime(2024, 11, 3)),  # noqa: DTZ001
    ("Australia/Lord_Howe", datetime(2024, 4, 7)),  # noqa: DTZ001  # by half an hour
    ("Pacific/Apia", datetime(2011, 12, 29)),  # noqa: DTZ001  # a day that does not occur
    ("UTC", datetime(2024, 3, 31)),  # noqa: DTZ001
]


@pytest.mark.parametrize(("zone", "day"), TRANSITIONS)
def test_a_zone_reads_times_as_zoneinfo_does(zone: str, day: datetime) -> None:
    times, info = local_times(day, 48), ZoneInfo(zone)
    reader = TimeReader("the time", lambda value: value, zone)
    expected = [time.replace(tzinfo=info).timestamp() for time in times]
    assert reader.of_values(times) == [*map(reader.of_value, times)] == expected
    of_numpy = [np.datetime64(time) for time in times if not time.fold]
    assert reader.of_values(of_numpy) == expected[::2]
    # once by of_values, by of_value, and by half as many of NumPy
    first = [time for time in times if not time.fold]
    offsets = [[t.replace(tzinfo=info, fold=fold).utcoffset() for fold in (0, 1)] for t in first]
    twice = sum(before > after for before, after in offsets)  # type: ignore[operator]
    never = sum(before < after for before, after in offsets)  # type: ignore[operator]
    assert reader.figures() == {"ambiguous times": 5 * twice, "skipped times": 5 * never}
    assert (twice > 0) or (never > 0) or zone == "UTC"


@pytest.mark.parametrize("source", ["rows", "tables", "batches"])
def test_windows_of_local_times_are_aligned_to_utc(
    source: str, caplog: pytest.LogCaptureFixture
) -> None:
    day = datetime(2024, 10, 27)  # noqa: DTZ001
    times = [time for time in local_times(day, 6) if not time.fold or source != "tables"]
    topology, kind = Topology("zoned"), tumbling(seconds=3600, field="at", zone=BERLIN)
    rows = [Row("a", time) for time in times]
    with caplog.at_level(logging.WARNING, "sunshower"):
        if source == "batches":
            spout = FixedBatchSpout(rows, 7, type=Row)
            stream = batches(topology, "in", spout, store=InMemory())
            emitted: list[Any] = []
            kind = tumbling(seconds=3600, field="at", zone=BERLIN, late=3600)
            stream.group_by("k").window(kind, count(), state=MemoryState()).peek(emitted.append)
            done = run_inline(topology.graph(), clock=ManualClock())
        else:
            read: Any = Records(rows, type=Row) if source == "rows" else Tables(times)
            counts = topology.spout("in", read).group_by("k").window(kind, count())
            counts.shuffle().bolt("kept", Kept)
            done = run_inline(topology.graph(), clock=ManualClock())
            emitted = done.results["kept"][0]
    zone = ZoneInfo(BERLIN)
    expected = Counter(t.replace(tzinfo=zone).timestamp() // 3600 * 3600 + 3600 for t in times)
    assert sorted(emitted) == [("a", end, number) for end, number in sorted(expected.items())]
    figures = Counter[str]()
    for component in {task.component for task in done.snapshot.tasks()}:
        figures.update(done.snapshot.figures(component))
    assert figures["ambiguous times"] == (8 if source != "tables" else 4)
    assert figures["skipped times"] == 0
    assert sum("occurs twice" in record.getMessage() for record in caplog.records) in (1, 2)


def test_each_side_of_a_join_has_its_zone() -> None:
    topology = Topology("join")
    left = topology.spout("left", Records([Row("a", NAIVE + timedelta(hours=2))], type=Row))
    right = topology.spout("right", Records([Other("a", NAIVE)], type=Other))
    joined = left.join(
        right, "k", within=0, field="at", other_field="on", zone=BERLIN, other_zone="UTC"
    )
    joined.shuffle().bolt("kept", Kept)
    assert len(run(topology)) == 1


def test_a_zone_leaves_times_with_one_as_they_are() -> None:
    times = [AWARE, AWARE.astimezone(ZoneInfo("Asia/Tokyo")), NAIVE + timedelta(hours=2)]
    topology = Topology("mixed")
    window(topology, BERLIN, Records([Row("a", time) for time in times], type=Row)).shuffle().bolt(
        "kept", Kept
    )
    assert run(topology) == [("a", AWARE.timestamp() + 60, 3)]


def test_wrong_zones_are_refused_at_the_declaration() -> None:
    for declare in (tumbling, partial(sliding, every=60)):
        with pytest.raises(ConfigError, match="'Berlin', which is no time zone"):
            declare(seconds=60, field="at", zone="Berlin")
    with pytest.raises(ConfigError, match="no time zone"):
        sessions(gap=60, field="at", zone="../etc/passwd")
    with pytest.raises(ConfigError, match="zone= needs field="):
        tumbling(seconds=60, zone=BERLIN)
    with pytest.raises(ConfigError, match="zone= are for windows of time"):
        tumbling(count=60, zone=BERLIN)
    topology = Topology("zones")
    with pytest.raises(ConfigError, match="other_zone: zone is 'x'"):
        of_a_join(topology, "x")
    with pytest.raises(TopologyError, match="as is zone="):
        topology.spout("rows", Records([Row("a", 1)], type=Row)).group_by("k").process(
            set_timer, zone=BERLIN
        )


class Paced(Records[Row]):
    """Its rows, with a moment after each, so that watermarks go between them."""

    def records(self) -> Iterator[Any]:
        for row in super().records():
            yield row
            yield None


ZONES = (BERLIN, "America/New_York", "Asia/Tokyo")


@pytest.mark.parametrize("in_batches", [False, True])
@seeds(60)
def test_each_window_of_a_spout_reads_times_in_its_zone(seed: int, in_batches: bool) -> None:
    """Local times, disordered within `late`: none is late in a window of any zone."""
    draw, late = Random(seed), 7_200
    zones = draw.sample(ZONES, draw.randint(2, 3))
    rows, time = list[Row](), datetime(2024, draw.choice((3, 6, 10)), 28)  # noqa: DTZ001
    for number in range(60):
        time += timedelta(seconds=draw.choice((0, 600, 5_000)))
        back = timedelta(seconds=draw.choice((0, 0, late)))
        rows.append(Row("ab"[number % 2], time - back))
    topology, emitted = Topology("zones"), defaultdict[str, list[Any]](list)
    stream: Any = topology.spout("in", Paced(rows, type=Row))
    if in_batches:
        stream = batches(topology, "rows", FixedBatchSpout(rows, 3, type=Row), store=InMemory())
    for number, zone in enumerate(zones):
        days: Any = {"seconds": 3_600} if draw.random() < 0.3 else {"days": 1}
        window = tumbling(**days, field="at", zone=zone, late=late + 3_600)  # clocks may change
        settings: Any = {"name": f"w{number}", "state": MemoryState()}
        ended = stream.group_by("k").window(window, count(), **settings)
        divided, keep = window.divided(), emitted[zone]
        ended.peek(lambda row, keep=keep: keep.append(tuple(row)))
        expected = Counter[Any]()
        for row in rows:
            second = row.at.replace(tzinfo=ZoneInfo(zone)).timestamp()
            end = divided.start(divided.of_time(second) + 1)
            expected[row.k, as_datetime(end) if "days" in days else end] += 1
        zones[number] = [zone, expected]
    run_inline(topology.graph(), clock=ManualClock())
    for zone, expected in zones:
        assert Counter({row[:2]: row[2] for row in emitted[zone]}) == expected, (
            f"seed {seed}, {zone}"
        )
        assert len(emitted[zone]) == len(expected), f"seed {seed}, {zone}: each window once"


def test_a_window_without_a_zone_beside_one_with_a_zone_reads_moments() -> None:
    topology = Topology("zones")
    source = topology.spout("in", Records([Row("a", AWARE)], type=Row)).group_by("k")
    source.window(tumbling(seconds=60, field="at", zone=BERLIN), count(), name="first")
    moments = source.window(tumbling(seconds=60, field="at"), count(), name="second")
    moments.shuffle().bolt("kept", Kept)
    assert run(topology) == [("a", AWARE.timestamp() + 60, 1)]


# ---- tables --------------------------------------------------------------------------------------


class Named(NamedTuple):
    k: str
    at: Any
    name: str


def latest(changes: Sequence[Named]) -> list[Any]:
    """What a table has, after these changes."""
    topology = Topology("table")
    retry = Retry(attempts=1, dead_letters=True)
    source = topology.spout("in", Records(changes, type=Named), retry=retry)
    table = source.group_by("k").table(field="at")

    def asked() -> Iterator[Row | None]:
        for _ in range(50):
            yield None
        yield Row("a", 0)

    asking = topology.spout("asking", Records(asked, type=Row))
    asking.join(table, "k", fields=("k", "asked", "at", "name")).shuffle().bolt("kept", Kept)
    source.stream("dead_letters").shuffle().bolt("letters", Kept)
    results = run_inline(topology.graph(), clock=ManualClock()).results
    return [[row[3] for row in results["kept"][0]], results["letters"][0]]


@pytest.mark.parametrize(
    "later",
    [
        lambda n: NAIVE.replace(fold=n % 2) + timedelta(seconds=n),
        lambda n: AWARE + timedelta(seconds=n),
        lambda n: Decimal(n) / 10,
        lambda n: 2**60 + n,
        lambda n: date(2024, 1, 1 + n),
    ],
)
def test_a_table_orders_changes_of_any_type_of_time(later: Callable[[int], Any]) -> None:
    changes = [Named("a", later(1), "first"), Named("a", later(3), "last")]
    changes.append(Named("a", later(2), "between"))
    names, letters = latest(changes)
    assert names == ["last"]
    assert letters == []


def test_a_table_refuses_a_change_with_and_one_without_a_zone() -> None:
    names, letters = latest([Named("a", NAIVE, "first"), Named("a", AWARE, "second")])
    assert names == ["first"]
    assert len(letters) == 1
    assert "give all of them a zone" in str(letters)
