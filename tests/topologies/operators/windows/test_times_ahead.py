"""Event times in the future: they do not move the watermark, are counted, and status names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import inf
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from sunshower import (
    Bolt,
    Context,
    KeyState,
    LogSpout,
    Polled,
    Records,
    Spout,
    Topology,
    collect,
    count,
    run_inline,
    sessions,
    sliding,
    tumbling,
)
from sunshower.clock import ManualClock
from sunshower.errors import ConfigError, TopologyError, TopologyFailed
from sunshower.runtime.inline import Finished
from sunshower.simulation.cluster import SimCluster
from sunshower.state import SqliteState
from sunshower.topologies.operators.windows.event_times import ClockLimit, TimeField
from tests.topologies.operators.kinds import Kept
from tests.topologies.operators.windows.test_reached_times import TimesRig

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
MINUTES = 20  # of data: one record each minute, up to NOW
FUTURE = 5  # the record that is two hours ahead


class Event(NamedTuple):
    key: str
    at: Any


class Dated(NamedTuple):
    key: str
    at: datetime


class Counted(NamedTuple):
    key: str
    at: float


KINDS: dict[str, tuple[Callable[[datetime], Any], float, str | None]] = {
    # the value of a moment, a minute in its unit, and the unit
    "datetime": (lambda at: at, 60, None),
    "naive datetime": (lambda at: at.replace(tzinfo=None), 60, None),
    "numpy": (lambda at: np.datetime64(at.replace(tzinfo=None), "ns"), 60, None),
    "seconds": (lambda at: at.timestamp(), 60, "s"),
    "milliseconds": (lambda at: int(at.timestamp()) * 1_000, 60_000, "ms"),
    "nanoseconds": (lambda at: int(at.timestamp()) * 10**9, 60 * 10**9, "ns"),
    "decimals": (lambda at: Decimal(int(at.timestamp())) + Decimal("0.1"), 60, "s"),
    "datetimes in seconds": (lambda at: at, 60, "s"),
}


def moments(ahead: timedelta = timedelta(hours=2)) -> list[datetime]:
    times = [NOW - timedelta(minutes=MINUTES - n) for n in range(MINUTES)]
    times[FUTURE] = NOW + ahead
    return times


class Paced(Spout[Event]):
    """Emits an event each second."""

    emits = Event

    def __init__(self, events: list[Event]) -> None:
        self.events = events

    def open(self, context: Context) -> None:
        self.clock, self.begun_s, self.next = context.clock, context.clock.now(), 0

    @property
    def is_due(self) -> bool:
        return self.clock.now() - self.begun_s >= self.next


class OfRecords(Paced):
    def records(self) -> Iterator[Event | None]:
        for event in self.events:
            while not self.is_due:
                yield None
            self.next += 1
            yield event


class OfTables(Paced):
    def tables(self) -> Iterator[pa.Table | None]:
        for event in self.events:
            while not self.is_due:
                yield None
            self.next += 1
            yield pa.table({"key": [event.key], "at": [event.at]})


class OfTuples(Paced):
    def next_tuple(self, out: Any) -> None:
        if self.next == len(self.events):
            out.finish()
        elif self.is_due:
            out.emit(self.events[self.next], self.next)
            self.next += 1


class OfMessages(LogSpout[Event]):
    """Each message has an event twice."""

    emits = Event

    def __init__(self, events: list[Event]) -> None:
        self.events = events

    def open(self, context: Context) -> None:
        self.clock, self.begun_s, self.next = context.clock, context.clock.now(), 0

    def poll(self, limit: int) -> Polled[Any]:
        is_due = self.clock.now() - self.begun_s >= self.next
        if self.next == len(self.events) or not limit or not is_due:
            return Polled(np.zeros(0, np.int64), [], ended=self.next == len(self.events))
        self.next += 1
        event = self.events[self.next - 1]
        return Polled(np.array([self.next - 1], np.int64), [[event, event]])


SOURCES: dict[str, Callable[[list[Event]], Any]] = {
    "records": OfRecords,
    "tables": OfTables,
    "next_tuple": OfTuples,
    "messages of several records": OfMessages,
}


def run(topology: Topology, now: datetime = NOW) -> Finished:
    return run_inline(topology.graph(), clock=ManualClock(date=now))


def in_windows(source: Any, window: Any) -> tuple[int, int, int]:
    """How many events are in windows, are late, and are ahead."""
    topology = Topology("events")
    rows = topology.spout("events", source).group_by("key").window(window, count())
    rows.shuffle().bolt("kept", Kept)
    done = run(topology)
    (counts,) = done.results["kept"]
    late = done.snapshot.component("windows").late
    return sum(row[2] for row in counts), late, done.snapshot.component("events").ahead


@pytest.mark.parametrize("kind", KINDS)
def test_a_time_in_the_future_makes_no_record_late(kind: str) -> None:
    value, minute, unit = KINDS[kind]
    events = [Event("a", value(at)) for at in moments()]
    declared: Any = {"seconds": minute, "field": "at", "zone": "UTC", "unit": unit}
    window = tumbling(**declared)
    assert in_windows(SOURCES["records"](events), window) == (MINUTES, 0, 1)
    window = tumbling(**declared, ahead=None)
    assert in_windows(SOURCES["records"](events), window)[1:] == (MINUTES - FUTURE - 1, 0)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    "window",
    [
        tumbling(seconds=120, field="at"),
        sliding(seconds=120, every=60, field="at"),
        sessions(gap=90, field="at"),
    ],
    ids=["tumbling", "sliding", "sessions"],
)
def test_it_is_so_for_each_kind_of_source_and_window(source: str, window: Any) -> None:
    events = [Event("a", at) for at in moments()]
    each = 1 + (source == "messages of several records")
    times = 2 if hasattr(window, "every") and window.every != window.length else 1
    counts = in_windows(SOURCES[source](events), window)
    assert counts == (MINUTES * each * times, 0, each)


def test_a_message_with_one_time_in_the_future_moves_the_watermark_by_the_others() -> None:
    class Mixed(OfMessages):
        def poll(self, limit: int) -> Polled[Any]:
            polled = super().poll(limit)
            for message in polled.records:
                message[1] = Event("a", NOW + timedelta(days=300))
            return polled

    events = [Event("a", at) for at in moments(timedelta(0))]
    topology = Topology("events")
    rows = topology.spout("events", Mixed(events)).group_by("key")
    rows = rows.window(tumbling(seconds=60, field="at"), count())  # type: ignore[assignment]
    rows.shuffle().bolt("kept", Kept)  # type: ignore[attr-defined]
    done = run(topology)
    assert done.snapshot.component("events").ahead == MINUTES
    (counts,) = done.results["kept"]
    assert [row[2] for row in counts[:5]] == [1] * 5, "windows end before the end of the source"


def test_numbers_without_a_unit_are_not_compared_with_the_clock() -> None:
    events = [Event("a", float(at)) for at in [*range(0, 600, 60), 4e9, *range(600, 900, 60)]]
    counts = in_windows(SOURCES["records"](events), tumbling(seconds=60, field="at"))
    assert counts == (11, 5, 0)


def test_an_own_distance_is_in_the_unit_of_the_field() -> None:
    window = tumbling(seconds=60, field="at", ahead=3 * 3600)
    events = [Event("a", at) for at in moments()]
    assert in_windows(SOURCES["records"](events), window)[1:] == (MINUTES - FUTURE - 1, 0)
    numbers = [Event("a", int(at.timestamp() * 1_000)) for at in moments()]
    for ahead, is_ahead in ((7_000_000, 1), (7_201_000, 0)):
        window = tumbling(seconds=60_000, field="at", ahead=ahead, unit="ms")
        assert in_windows(SOURCES["records"](numbers), window)[2] == is_ahead


def test_a_join_and_timers_are_not_moved_by_the_future() -> None:
    events = [Event(str(n // 2), at) for n, at in enumerate(moments())]
    topology = Topology("events")
    left = topology.spout("left", SOURCES["records"](events))
    right = topology.spout("right", SOURCES["records"](events))
    pairs = left.join(right, on="key", within=1, field="at", fields=("key", "at", "other"))
    pairs.shuffle().bolt("kept", Kept)

    def seen(event: Event, state: KeyState[int]) -> None:
        state.value = (state.value or 0) + 1
        if state.timer is None:
            state.timer = event.at + timedelta(seconds=90)

    def fired(key: Any, state: KeyState[int]) -> Iterator[tuple[int]]:
        yield ((state.value or 0),)

    sums = left.group_by("key").process(seen, on_timer=fired, event_time="at", fields=("number",))
    sums.shuffle().bolt("fired", Kept)
    done = run(topology)
    assert done.snapshot.component("join").late == 0
    assert len(done.results["kept"][0]) == MINUTES
    assert done.results["fired"][0] == [(2,)] * (MINUTES // 2), "after both events of a key"


class FailsOnce(Bolt[Event, Event]):
    """Lets time pass, and fails the event in the future the first time."""

    def prepare(self, context: Context) -> None:
        self.clock, self.has_failed = context.clock, False

    def process(self, event: Event) -> list[Event]:
        if event.at > NOW and not self.has_failed:
            self.has_failed = True
            self.clock.sleep(2 * 3600.0)
            raise ValueError("not yet")
        return [event]


def test_a_replayed_record_has_the_decision_of_its_first_emit() -> None:
    topology = Topology("events", message_timeout_s=86_400.0)
    events = [Event("a", at) for at in moments()]
    stream = topology.spout("events", SOURCES["records"](events))
    rows = stream.shuffle().bolt("fails", FailsOnce).group_by("key")
    windows = rows.window(tumbling(seconds=60, field="at"), count())
    windows.shuffle().bolt("kept", Kept)
    done = run(topology)
    spout = done.snapshot.component("events")
    assert (spout.ahead, spout.failed) == (1, 1)
    assert done.snapshot.component("windows").late == 0


# ---- partitions, and status ----------------------------------------------------------------------


def test_a_partition_with_only_future_times_is_passed_over_after_30_s() -> None:
    rig = TimesRig(0, 1)
    rig.wait(1, [], p0=10.0, p1=5.0)
    for at_end in ([], [1]):  # whether it has a backlog
        for _ in range(15):
            rig.times.emitted_ahead(1, rig.now + 1.0)
            rig.wait(1, at_end, p0=50.0)
    assert rig.times.lowest == 5.0
    for _ in range(5):
        rig.times.emitted_ahead(1, rig.now + 1.0)
        rig.wait(1, [], p0=50.0)
    assert rig.times.lowest == 50.0
    assert [*rig.times.only_ahead(rig.now)] == [1]
    rig.wait(60, [], p0=90.0)  # its broker is away
    assert rig.times.lowest == 50.0, "no further than its last record"
    rig.wait(1, [], p0=90.0, p1=60.0)
    assert rig.times.lowest == 60.0
    assert not rig.times.only_ahead(rig.now)


def test_an_outage_after_one_future_time_holds_windows_back() -> None:
    rig = TimesRig(0, 1)
    rig.wait(1, [], p0=10.0, p1=5.0)
    rig.times.emitted_ahead(1, rig.now + 1.0)
    rig.wait(300, [], p0=50.0)
    assert rig.times.lowest == 5.0


class TwoHalves(LogSpout[Dated]):
    """Two partitions with a record each second. The times of the second one are a day ahead."""

    def __init__(self, partitions: int, shift: timedelta, seconds: int = 100) -> None:
        self.partitions, self.shift, self.seconds = partitions, shift, seconds

    def open(self, context: Context) -> None:
        self.clock, self.begun_s = context.clock, context.clock.now()
        self.read = dict.fromkeys(self.partitions_read(), 0)

    def poll(self, limit: int) -> Polled[Dated]:
        second = min(int(self.clock.now() - self.begun_s), self.seconds)
        numbers, records = list[int](), list[Dated]()
        for part in self.read:
            while self.read[part] < second and len(numbers) < limit:
                at = NOW + timedelta(seconds=self.read[part])
                numbers.append(part << 48 | self.read[part])
                records.append(Dated("ab"[part], at + self.shift * part))
                self.read[part] += 1
        ended = {*self.read.values()} == {self.seconds}
        return Polled(np.array(numbers, np.int64), records, ended=ended)

    def partitions_read(self) -> list[int]:
        return [*range(2 - self.partitions, 2)]

    def partitions_of(self, numbers: Any) -> Any:
        return numbers >> 48

    def partitions_at_end(self) -> Any:
        return {}


def of_halves(*spouts: Any) -> Topology:
    topology = Topology("halves")
    streams = [topology.spout(f"in-{n}", spout) for n, spout in enumerate(spouts)]
    rows = streams[0].merge(*streams[1:]).window(tumbling(seconds=5, field="at"), collect("key"))
    rows.shuffle().bolt("kept", Kept)
    return topology


def test_status_names_a_partition_that_is_passed_over() -> None:
    topology = of_halves(TwoHalves(2, timedelta(days=1)))
    with SimCluster(1, date=NOW) as cluster:
        run = cluster.submit(topology.graph())
        run.wait(60.0)
        snapshot = run.snapshot()
        (note,) = snapshot.event_time_notes("in-0")
        assert "all times of partition 1 have been more than 1 h ahead for" in note
        assert not [*snapshot.watermark_holds("in-0")]
        assert snapshot.component("windows").emitted > 5
        assert run.wait(600.0)
        snapshot = run.snapshot()
        rows = run.results("kept")[0]
    assert sum(len(row[1]) for row in rows) == 200
    assert (snapshot.component("in-0").ahead, snapshot.component("windows").late) == (100, 0)


def test_status_says_that_windows_wait_if_all_times_are_in_the_future() -> None:
    topology = of_halves(TwoHalves(1, timedelta(days=1)))
    with SimCluster(1, date=NOW) as cluster:
        run = cluster.submit(topology.graph())
        run.wait(60.0)
        snapshot = run.snapshot()
        assert [*snapshot.watermark_holds("in-0")] == [
            "all times are more than 1 h ahead; use `ahead=None` if this is right"
        ]
        assert snapshot.component("windows").emitted == 0
        assert run.wait(600.0)
        rows = run.results("kept")[0]
    assert sum(len(row[1]) for row in rows) == 100, "the end of the source ends all windows"


def test_windows_do_not_wait_for_a_source_whose_times_are_all_in_the_future() -> None:
    topology = of_halves(TwoHalves(1, timedelta(days=1)), TwoHalves(1, timedelta(0)))
    with SimCluster(1, date=NOW) as cluster:
        run = cluster.submit(topology.graph())
        run.wait(90.0)
        snapshot = run.snapshot()
        assert snapshot.component("windows").emitted > 5
        assert [*snapshot.watermark_holds("in-0")]
        assert run.wait(600.0)
        assert run.snapshot().component("windows").late == 0


# ---- states --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tumbling", "sessions", "join", "windows of windows"])
def test_a_future_time_does_not_make_the_next_run_late(kind: str, tmp_path: Any) -> None:
    def go(times: list[datetime]) -> int:
        topology = Topology("events")
        events = [Event("a", at) for at in times]
        stream = topology.spout("events", SOURCES["records"](events))
        state = SqliteState(str(tmp_path / "state.db"))
        if kind == "join":
            other = topology.spout("other", SOURCES["records"](events))
            rows: Any = stream.join(
                other, on="key", within=1, field="at", state=state, fields=("key", "at", "by")
            )
        else:
            windows: dict[str, Any] = {
                "tumbling": tumbling(seconds=60, field="at"),
                "sessions": sessions(gap=30, field="at"),
                "windows of windows": tumbling(seconds=60, field="at"),
            }
            rows = stream.group_by("key").window(windows[kind], count(), state=state)
        if kind == "windows of windows":
            more = tumbling(seconds=300, field="window")
            rows = rows.window(more, count(), state=state, name="more")
        rows.shuffle().bolt("kept", Kept)
        done = run(topology, NOW + timedelta(hours=1))
        stages = {"join": ["join"], "windows of windows": ["windows", "more"]}
        late = (done.snapshot.component(id).late for id in stages.get(kind, ["windows"]))
        return sum(late)

    assert go(moments(timedelta(days=300))) == 0
    later = [at + timedelta(hours=1) for at in moments(timedelta(minutes=FUTURE - MINUTES))]
    assert go(later) == 0
    assert go(later) == len(later) * (1 + (kind == "join"))


def test_the_results_of_a_window_in_the_future_are_numbered_on_in_the_next_run(
    tmp_path: Any,
) -> None:
    """A table whose `version` is the number shows what each run has found."""
    state, ahead = SqliteState(str(tmp_path / "state.db")), NOW + timedelta(days=300)

    def go(times: list[datetime], now: datetime) -> list[tuple[str, int, int]]:
        topology = Topology("events")
        stream = topology.spout("events", Records([Event("a", at) for at in times], type=Event))
        window = tumbling(seconds=60, field="at", early=0.1)
        rows = stream.group_by("key").window(window, count(), state=state)
        rows.shuffle().bolt("kept", Kept)
        results = run(topology, now).results["kept"][0]
        return [row[2:] for row in results if row[1] > ahead.timestamp()]

    first = go([NOW, ahead, ahead], NOW)
    second = go([NOW + timedelta(hours=1), ahead], NOW + timedelta(hours=1))
    third = go([ahead + timedelta(hours=1)], ahead + timedelta(hours=1))
    numbers = [number for _, number, _ in first + second]
    assert numbers == [*range(1, len(numbers) + 1)]
    assert [first[-1][::2], second[-1][::2]] == [("final", 2), ("final", 1)]
    assert [number for _, number, _ in third] == [1], "it is another window"


# ---- declarations --------------------------------------------------------------------------------


def test_wrong_distances_are_refused_at_the_declaration() -> None:
    for window in (tumbling, sessions):
        length = {"seconds": 60} if window is tumbling else {"gap": 60}
        with pytest.raises(ConfigError, match="ahead is -1; it must be"):
            window(**length, field="at", ahead=-1)  # type: ignore[operator]
        with pytest.raises(ConfigError, match="unit is 'min'; it must be 's', or 'ms'"):
            window(**length, field="at", unit="min")  # type: ignore[operator]
    with pytest.raises(ConfigError, match="ahead= needs field="):
        tumbling(seconds=60, ahead=None)
    with pytest.raises(ConfigError, match="unit= needs field="):
        tumbling(seconds=60, unit="s")
    topology = Topology("events")
    spout = topology.spout("in", Records([], type=Counted))
    with pytest.raises(TopologyError, match="ahead= needs event_time="):
        spout.group_by("key").process(_seen, on_timer=_fired, ahead=5)
    with pytest.raises(TopologyError, match="unit is 'h'"):
        spout.join(spout, on="key", within=1, field="at", unit="h")  # type: ignore[typeddict-item]


def _seen(event: Counted, state: KeyState[int]) -> None: ...


def _fired(key: Any, state: KeyState[int]) -> None: ...


def test_two_windows_of_one_source_have_the_same_distance() -> None:
    for more, name in (({"ahead": None}, "ahead"), ({"unit": "ms"}, "unit")):
        topology = Topology("events")
        spout = topology.spout("in", Records([], type=Counted))
        spout.window(tumbling(seconds=60, field="at"), count(), name="a").shuffle().bolt("x", Kept)
        other = tumbling(seconds=60, field="at", **more)  # type: ignore[arg-type]
        spout.window(other, count(), name="b").shuffle().bolt("y", Kept)
        with pytest.raises(TopologyError, match=f"give both the same {name}="):
            topology.graph()


def test_numbers_with_a_distance_need_a_unit() -> None:
    topology = Topology("events")
    spout = topology.spout("in", Records([], type=Counted))
    spout.window(tumbling(seconds=60, field="at", ahead=60), count()).shuffle().bolt("x", Kept)
    with pytest.raises(TopologyError, match=r"field 'at' of .* 'in' is a number, .*unit=\"s\""):
        topology.graph()
    events = [Event("a", at.timestamp()) for at in moments()]
    with pytest.raises(TopologyFailed, match=r"field 'at' of spout 'events' is a number.*unit="):
        in_windows(SOURCES["records"](events), tumbling(seconds=60, field="at", ahead=60))
    window = tumbling(seconds=60, field="at", ahead=60, unit="s")
    assert in_windows(SOURCES["records"](events), window) == (MINUTES, 0, 1)


def test_a_unit_of_numbers_is_refused_for_datetimes() -> None:
    events = [Event("a", at) for at in moments()]
    with pytest.raises(TopologyFailed, match="is a datetime, which is in seconds"):
        in_windows(SOURCES["records"](events), tumbling(seconds=60, field="at", unit="ms"))


def test_the_limit_is_read_in_the_unit_of_the_values() -> None:
    limit = ClockLimit("it", TimeField("at"))
    late, soon = NOW + timedelta(hours=2), NOW + timedelta(minutes=59)
    mixed: list[Any] = [late, 9e99, soon, date(2030, 1, 1), np.datetime64("2030-01-01"), None]
    times = [late.timestamp(), 9e99, soon.timestamp(), 1893456000.0, 1893456000.0, inf]
    places = limit.beyond(mixed, {*map(type, mixed)}, times, NOW.timestamp())
    assert places == [0, 3, 4]
    minute_limit = ClockLimit("it", TimeField("at", None, 60))
    assert minute_limit.beyond(
        [soon, None], {datetime, type(None)}, [times[2], inf], NOW.timestamp()
    ) == [0]
    texts = {3600: "1 h", 90: "90 s", 0: "0 s", 600: "10 min", 86_400 * 3: "3 d"}
    assert {s: ClockLimit("it", TimeField("at", None, s)).text for s in texts} == texts
    assert ClockLimit("it", TimeField("at", None, 5_000, "ms")).text == "5 s"
