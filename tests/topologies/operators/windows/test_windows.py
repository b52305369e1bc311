"""Windows of streams: the records of each window, late records, and records without a time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from random import Random
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower import (
    Context,
    Line,
    LogSpout,
    Polled,
    Records,
    Retry,
    Spout,
    SpoutCollector,
    Topology,
    collect,
    count,
    run_inline,
    sessions,
    sliding,
    sum_,
    top,
    tumbling,
)
from sunshower.clock import ManualClock
from sunshower.errors import TopologyError, TopologyFailed, UnknownField
from sunshower.runtime.inline import Finished
from sunshower.state import MemoryState, SqliteState
from sunshower.topologies.operators.windows.window_kinds import AnyWindow
from sunshower.topologies.streams import Stream
from sunshower.trident import Aggregator, Attempt, FixedBatchSpout, InMemory, batches
from tests.topologies.operators.kinds import Kept


class Click(NamedTuple):
    user: str
    at: float


class Text(NamedTuple):
    at: str


class Paced(Spout[Click]):
    """Emits one click a second."""

    def __init__(self, *times: float) -> None:
        self.times = times

    def open(self, context: Context) -> None:
        self.clock = context.clock

    def records(self) -> Iterator[Click | None]:
        begun_s = self.clock.now()
        for number, time in enumerate(self.times):
            while self.clock.now() < begun_s + number:
                yield None
            yield Click("a", time)


class Apart(Spout[Click]):
    """Emits the clicks in batches of a few."""

    def __init__(self, clicks: Sequence[Click], size: int) -> None:
        self.clicks, self.size = clicks, size

    def records(self) -> Iterator[Click | None]:
        for number, click in enumerate(self.clicks, start=1):
            yield click
            if number % self.size == 0:
                yield None


class Number(Aggregator[Click, list[int]]):
    """Counts the records, as an aggregator that needs all of them."""

    fields = ("count",)

    def init(self, attempt: Attempt) -> list[int]:
        return [0]

    def aggregate(self, state: list[int], record: Click) -> None:
        state[0] += 1

    def complete(self, state: list[int]) -> Iterator[tuple[int]]:
        yield (state[0],)


class Length(collect):
    """Counts the records, with a value that grows with them."""

    def result(self, value: Any) -> int:
        return len(value)


NUMBERS = st.sampled_from([count(), Number(), Length("at")])


def run(topology: Topology) -> Finished:
    return run_inline(topology.graph(), clock=ManualClock())


def rows(
    source: Any, assemble: Callable[[Stream[Click]], Sequence[Stream[Any]]], tasks: int = 1
) -> list[list[Any]]:
    """Run a topology. Return the sorted rows of each stream."""
    topology = Topology("clicks")
    clicks = topology.spout("clicks", source, parallelism=tasks)
    streams = assemble(clicks)
    for place, stream in enumerate(streams):
        stream.shuffle().bolt(f"kept-{place}", Kept)
    results = run(topology).results
    return [sorted(results[f"kept-{place}"][0]) for place in range(len(streams))]


def of_users(window: AnyWindow, *aggregators: Any, **settings: Any) -> Any:
    def assemble(clicks: Stream[Click]) -> Sequence[Stream[Any]]:
        ended = clicks.group_by("user").window(window, *aggregators or [count()], **settings)
        return [ended, ended.late]

    return assemble


def rows_of_batches(clicks: list[Click], size: int, window: Any, number: Any) -> list[Any]:
    """The sorted rows of the same windows over exactly-once batches."""
    topology = Topology("clicks")
    spout = FixedBatchSpout(clicks, size, type=Click)
    grouped = batches(topology, "clicks", spout, store=InMemory()).group_by("user")
    counts = grouped.window(window, number, state=MemoryState(), parallelism=2)
    counts.records("rows").shuffle().bolt("kept", Kept)
    return sorted(run(topology).results["kept"][0])


def sessions_of(times: Sequence[float], gap: float) -> list[tuple[float, int]]:
    """Return (end, clicks) of each session, as a plain program computes them."""
    groups: list[list[float]] = []
    for time in sorted(times):
        if not groups or time - groups[-1][-1] >= gap:
            groups.append([])
        groups[-1].append(time)
    return [(session[-1] + gap, len(session)) for session in groups]


TIMES = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(-50, 200)), min_size=1, max_size=60
).map(lambda pairs: [Click(user, float(at)) for user, at in pairs])


@given(TIMES, st.sampled_from([(10, 10), (30, 10), (7, 7)]), NUMBERS, st.integers(1, 60))
def test_windows_of_time_have_the_records_of_a_plain_program(
    clicks: list[Click], length: tuple[int, int], number: Any, size: int
) -> None:
    window = sliding(seconds=length[0], every=length[1], field="at", late=1_000)
    ended, late = rows(Apart(clicks, size), of_users(window, number, parallelism=2))
    expected: Counter[Any] = Counter()
    for click in clicks:
        first = (click.at // length[1] + 1) * length[1]
        ends = (first + n * length[1] for n in range(length[0] // length[1]))
        expected.update((click.user, end) for end in ends)
    assert Counter({row[:2]: row[2] for row in ended}) == expected
    assert late == []
    assert rows_of_batches(clicks, size, window, number) == ended


@given(TIMES, st.sampled_from([1, 10, 40]), NUMBERS, st.integers(1, 60))
def test_sessions_have_the_records_of_a_plain_program(
    clicks: list[Click], gap: int, number: Any, size: int
) -> None:
    window = sessions(gap=gap, field="at", late=1_000)
    ended, late = rows(Apart(clicks, size), of_users(window, number, parallelism=2))
    times = defaultdict(list)
    for click in clicks:
        times[click.user].append(click.at)
    expected = [
        (user, *end) for user, seconds in times.items() for end in sessions_of(seconds, gap)
    ]
    assert ended == sorted(expected)
    assert late == []


@given(st.lists(st.integers(-50, 60), max_size=20), st.integers(1, 6), st.randoms())
def test_sessions_and_late_records_depend_neither_on_the_order_of_a_batch_nor_on_its_tasks(
    times: list[int], size: int, random: Random
) -> None:
    results = []
    for order, tasks in ((lambda _: None, 1), (random.shuffle, 1), (random.shuffle, 3)):
        topology = Topology("clicks")
        clicks = list[Click]()
        for first in range(0, len(times), size):
            of_batch = [Click("a", float(time)) for time in times[first : first + size]]
            order(of_batch)
            clicks += of_batch
        spout = FixedBatchSpout(clicks, size, type=Click)
        spread = batches(topology, "clicks", spout, store=InMemory()).shuffle(parallelism=tasks)
        grouped = spread.filter(lambda _: True).group_by("user")
        counts = grouped.window(sessions(gap=10, field="at"), count(), state=MemoryState())
        counts.records("rows").shuffle().bolt("kept", Kept)
        counts.late.records("late-rows").shuffle().bolt("kept-late", Kept)
        finished = run(topology)
        results.append([sorted(finished.results[name][0]) for name in ("kept", "kept-late")])
    assert results[0] == results[1] == results[2]


@given(TIMES, st.sampled_from([(1, 1), (4, 4), (6, 2)]), NUMBERS, st.integers(1, 60))
def test_windows_of_a_number_have_the_records_of_a_plain_program(
    clicks: list[Click], length: tuple[int, int], number: Any, size: int
) -> None:
    window = sliding(count=length[0], every=length[1])
    ended, _ = rows(Apart(clicks, size), of_users(window, number, parallelism=2))
    assert ended == sorted(
        (user, window, min((window + 1) * length[1], length[0]))
        for user, several in Counter(click.user for click in clicks).items()
        for window in range(several // length[1])
    )
    assert rows_of_batches(clicks, size, window, number) == ended


def test_windows_of_the_clock_end_as_time_passes() -> None:
    ended, _ = rows(Paced(*range(10)), of_users(tumbling(seconds=4)))
    assert sum(row[2] for row in ended) == 10
    assert len(ended) in (3, 4)  # the first window may have begun before the first click


def test_without_groups_one_task_has_all_records() -> None:
    window = tumbling(seconds=10, field="at")
    clicks = Records([Click("ab"[n % 2], n) for n in range(30)], type=Click)
    (ended,) = rows(clicks, lambda stream: [stream.window(window, count(), sum_("at"))])
    assert ended == [(10, 10, 45), (20, 10, 145), (30, 10, 245)]


@given(
    TIMES,
    st.sampled_from(
        [
            tumbling(seconds=40, field="at", late=1_000),
            sliding(seconds=30, every=10, field="at", late=1_000),
            sessions(gap=10, field="at", late=1_000),
        ]
    ),
    st.integers(1, 60),
)
def test_a_window_without_groups_is_as_one_group(
    clicks: list[Click], window: AnyWindow, size: int
) -> None:
    later = count(where=lambda click: click.at > 50)
    last = top(2, by="at", ties=True)
    numbers = [count(name="all"), count("at"), later, sum_("at"), Length("at"), last]

    def assemble(stream: Stream[Click]) -> Sequence[Stream[Any]]:
        grouped = stream.group_by("user").window(window, *numbers, name="grouped")
        return [stream.window(window, *numbers, name="alone"), grouped]

    alone, grouped = rows(Apart([Click("a", click.at) for click in clicks], size), assemble)
    assert alone
    assert [("a", *row) for row in alone] == [tuple(row) for row in grouped]


@pytest.mark.parametrize(
    "window",
    [tumbling(seconds=1), tumbling(seconds=1, field="at"), sessions(gap=1, field="at")],
)
def test_parts_of_windows_are_few_rows_of_many_records(window: AnyWindow) -> None:
    """So the room for them does not limit how many records are taken at once, and the window takes
    those of several tasks at once."""
    topology = Topology("clicks")
    clicks = topology.spout("clicks", Paced(1))
    clicks.window(window, count(), name="counts").shuffle().bolt("kept", Kept)
    codes = {bolt.id: bolt.implementation for bolt in topology.graph().bolts}
    (combine,) = (code for id, code in codes.items() if id not in ("counts", "kept"))
    assert combine.makes_fewer
    assert combine.combines
    assert codes["counts"].joins_shared


def test_an_aggregator_that_is_no_combiner_gets_the_records_of_the_window() -> None:
    class Ends(Aggregator[Click, list[float]]):
        fields = ("first", "last")

        def init(self, attempt: Attempt) -> list[float]:
            return []

        def aggregate(self, state: list[float], record: Click) -> None:
            state.append(record.at)

        def complete(self, state: list[float]) -> Iterator[tuple[float, float]]:
            yield min(state), max(state)

    for window in (tumbling(seconds=10, field="at"), sessions(gap=5, field="at")):
        ended, _ = rows(Paced(1, 2, 4, 13), of_users(window, Ends()))
        assert [row[2:] for row in ended] == [(1, 4), (13, 13)]


def test_a_late_record_is_counted_separately() -> None:
    """A record is late after a record whose time is higher by more than `late`."""
    ended, late = rows(Paced(1, 25, 2, 3, 41), of_users(tumbling(seconds=10, field="at", late=3)))
    assert ended == [("a", 10, 1), ("a", 30, 1), ("a", 50, 1)]
    assert sum(row[2] for row in late) == 2
    assert {row[:2] for row in late} == {("a", 10)}
    ended, late = rows(Paced(1, 25, 2, 3, 41), of_users(sessions(gap=5, field="at", late=3)))
    assert ended == [("a", 6, 1), ("a", 30, 1), ("a", 46, 1)]
    assert {row[1] for row in late} <= {7, 8}
    assert sum(row[2] for row in late) == 2


def test_a_record_within_late_is_on_time() -> None:
    ended, late = rows(Paced(1, 12, 2, 3, 41), of_users(tumbling(seconds=10, field="at", late=10)))
    assert (ended, late) == ([("a", 10, 3), ("a", 20, 1), ("a", 50, 1)], [])


class TwoPartitions(LogSpout[Click]):
    """A log whose second partition is read five seconds after the first."""

    def open(self, context: Context) -> None:
        self.clock, self.begun_s, self.read = context.clock, context.clock.now(), [0, 0]

    def poll(self, limit: int) -> Polled[Click] | None:
        part = int(self.clock.now() - self.begun_s > 5)
        first = self.read[part]
        end = self.read[part] = min(50, first + limit)
        numbers = np.arange(first, end) + (part << 48)
        clicks = [Click("a", float(offset)) for offset in range(first, end)]
        return Polled(numbers, clicks, ended=self.read == [50, 50])


class Partitioned(TwoPartitions):
    def partitions_read(self) -> list[int]:
        return [0, 1]

    def partitions_of(self, numbers: Any) -> Any:
        return numbers >> 48


def test_windows_wait_for_the_slowest_partition() -> None:
    window = tumbling(seconds=10, field="at")
    ended, late = rows(Partitioned(), of_users(window))
    assert (ended, late) == ([("a", end, 20) for end in (10, 20, 30, 40, 50)], [])
    _, late = rows(TwoPartitions(), of_users(window))
    assert late


def test_event_times_may_be_datetimes() -> None:
    class Visit(NamedTuple):
        at: datetime

    visits = [Visit(datetime.fromtimestamp(1_000 + n, UTC)) for n in range(20)]
    window = tumbling(seconds=10, field="at")
    (ended,) = rows(Records(visits, type=Visit), lambda stream: [stream.window(window, count())])
    assert ended == [(1010, 10), (1020, 10)]


def test_a_spout_may_compute_the_event_time() -> None:
    class Lines(Records[Line]):
        def event_time(self, line: Line) -> float:
            return float(line.text)

    def parsed(line: Line) -> Click:
        return Click("a", float(line.text))

    window = tumbling(seconds=10, field="at")
    lines = Lines([Line(str(n)) for n in range(30)], type=Line)
    (ended,) = rows(lines, lambda s: [s.map(parsed).window(window, count())])
    assert ended == [(10, 10), (20, 10), (30, 10)]


def test_a_record_whose_time_cannot_be_computed_is_not_lost() -> None:
    class Lines(Records[Line]):
        def event_time(self, line: Line) -> float:
            return float(line.text.split()[0])

    def parsed(line: Line) -> Iterator[Click]:
        if line.text:
            yield Click("a", float(line.text))

    texts = ["1", "2", "", "3", "", "14"]
    lines = Lines([Line(text) for text in texts], type=Line)
    window = tumbling(seconds=10, field="at")
    (ended,) = rows(lines, lambda s: [s.flat_map(parsed).window(window, count())])
    assert ended == [(10, 3), (20, 1)]


def test_a_spout_of_tables_may_compute_the_event_time() -> None:
    class Tables(Spout[Click]):
        emits = Click

        def tables(self) -> Iterator[pa.Table]:
            yield pa.table({"user": ["a"] * 3, "at": [1.0, 2.0, 14.0]})

        def event_time(self, click: Click) -> float:
            return click.at

    ended, _ = rows(Tables(), of_users(tumbling(seconds=10, field="at")))
    assert ended == [("a", 10, 2), ("a", 20, 1)]


class Visit(NamedTuple):
    start: float


async def asked(click: Click) -> float:
    return click.at


def of_text(text: Text) -> str:
    return text.at


def click_of(visit: Visit) -> Click:
    return Click("a", visit.start)


@pytest.mark.parametrize("event_time", ["start", lambda visit: visit.start])
def test_the_declaration_of_a_spout_may_say_what_the_event_time_is(event_time: Any) -> None:
    """Instead of its method, too: with that, the last record would not be late."""

    class Visits(Spout[Visit]):
        def records(self) -> Iterator[Visit]:
            yield from map(Visit, (1.0, 12.0, 25.0, 3.0))

        def event_time(self, visit: Visit) -> float:
            return -visit.start

    topology = Topology("clicks")
    stream = topology.spout("visits", Visits(), event_time=event_time)
    window = stream.map(click_of).window(tumbling(seconds=10, field="at", late=9), count())
    window.shuffle().bolt("kept", Kept)
    window.late.shuffle().bolt("late", Kept)
    results = run(topology).results
    assert sorted(results["kept"][0] + results["late"][0]) == [(10, 2), (20, 1), (30, 1)]


def test_tables_have_the_event_time_that_is_declared() -> None:
    class Tables(Spout[Click]):
        emits = Click

        def tables(self) -> Iterator[pa.Table]:
            yield pa.table({"user": ["1", "2", "14"], "at": [0.0, 0.0, 0.0]})

    def parsed(click: Click) -> Click:
        return Click("a", float(click.user))

    topology = Topology("clicks")
    clicks = topology.spout("clicks", Tables(), event_time=lambda click: int(click.user))
    window = clicks.map(parsed).window(tumbling(seconds=10, field="at"), count())
    window.shuffle().bolt("kept", Kept)
    assert sorted(run(topology).results["kept"][0]) == [(10, 2), (20, 1)]


def test_a_declared_event_time_must_be_a_field_or_a_function() -> None:
    topology = Topology("clicks")
    with pytest.raises(UnknownField, match="spout 'clicks': event_time"):
        topology.spout("clicks", Records([], type=Click), event_time="when")
    with pytest.raises(TopologyError, match="a field, or a function of a record"):
        topology.spout("clicks", Records([], type=Click), event_time=7)  # type: ignore[arg-type]
    texts = topology.spout("texts", Records([], type=Text), event_time="at")
    texts.map(lambda text: Click(text.at, 0.0), fields=Click).window(
        tumbling(seconds=10, field="at"), count()
    )
    with pytest.raises(TopologyError, match="of spout 'texts' has as str, which is no time"):
        topology.graph()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: 0.0, "<lambda> must take exactly one record"),
        (divmod, "divmod must take exactly one record"),
        (datetime, "datetime is not a function of one record"),
        (asked, "asked is asynchronous"),
        (of_text, "it reads Text, but the stream carries Click"),
    ],
)
def test_the_function_of_an_event_time_must_fit_the_records(function: Any, message: str) -> None:
    topology = Topology("clicks")
    clicks = topology.spout("clicks", Records([], type=Click), event_time=function)
    clicks.window(tumbling(seconds=10, field="at"), count())
    with pytest.raises(TopologyError, match=f"event_time of spout 'clicks': {message}"):
        topology.graph()


def test_a_record_for_which_the_function_of_event_times_raises_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its window reads a field, and does not fail it."""
    topology = Topology("clicks")
    source = Records([Click("a", 1.0), Click("b", 2.0)], type=Click)
    clicks = topology.spout("clicks", source, event_time=lambda click: click.when)
    clicks.window(tumbling(seconds=10, field="at"), count()).shuffle().bolt("kept", Kept)
    assert run(topology).results["kept"] == [[(10, 2)]]
    (message,) = caplog.messages
    assert "Click(user='a', at=1.0) does not move the watermark: AttributeError" in message


def test_windows_of_windows_include_all_records() -> None:
    pairs = tumbling(count=2)

    def assemble(clicks: Stream[Click]) -> Sequence[Stream[Any]]:
        stream: Stream[Any] = clicks
        for depth in range(4):
            stream = stream.window(pairs, count(), name=f"pairs-{depth}")
        return [stream]

    assert rows(Paced(*range(16)), assemble) == [[(0, 2)]]


def test_a_stream_may_be_called_watermarks() -> None:
    class Named(Spout[Click]):
        streams: ClassVar = {"watermarks": Click}

        def next_tuple(self, out: SpoutCollector[Click]) -> None:
            out.emit(Click("a", 1.0), 1, stream="watermarks")
            out.finish()

    def older(click: Click) -> Click:
        return click._replace(at=click.at + 1)

    (clicks,) = rows(Named(), lambda s: [s.stream("watermarks", Click).map(older)])
    assert clicks == [("a", 2.0)]


def test_dead_letters_can_be_read_in_windows() -> None:
    def refuse(click: Click) -> None:
        raise ValueError("no clicks")

    topology = Topology("clicks")
    retry = Retry(attempts=1, dead_letters=True)
    clicks = topology.spout("clicks", Paced(*range(6)), retry=retry)
    clicks.shuffle().bolt("refuse", refuse)
    letters = clicks.stream("dead_letters").window(tumbling(count=2), count())
    letters.shuffle().bolt("kept", Kept)
    assert run(topology).results["kept"] == [[(0, 2), (1, 2), (2, 2)]]


def test_a_spout_that_cannot_be_opened_ends_the_topology() -> None:
    class Half(Paced):
        def open(self, context: Context) -> None:
            if context.index == 1:
                raise ValueError("no second one")
            super().open(context)

    topology = Topology("clicks", task_errors_max=2)
    clicks = topology.spout("clicks", Half(*range(6)), parallelism=2)
    clicks.window(tumbling(seconds=10, field="at"), count())
    with pytest.raises(TopologyFailed, match="no second one"):
        run(topology)


def test_a_record_without_a_message_id_is_refused() -> None:
    class Untracked(Spout[Click]):
        def next_tuple(self, out: SpoutCollector[Click]) -> None:
            out.emit(Click("a", 1.0))

    topology = Topology("clicks", task_errors_max=1)
    clicks = topology.spout("clicks", Untracked())
    clicks.window(tumbling(seconds=10, field="at"), count())
    with pytest.raises(TopologyFailed, match="emit each record with one"):
        run(topology)


def test_a_record_without_a_time_fails_alone() -> None:
    topology = Topology("clicks", attempts_max=2)
    bad: Any = [Click("a", 1), Click("a", "noon"), Click("a", 3)]  # type: ignore[arg-type]
    clicks = topology.spout("clicks", Records(bad, type=Click))
    clicks.window(tumbling(seconds=10, field="at"), count())
    with pytest.raises(TopologyFailed, match=r"message 1 .*'noon' is no event time"):
        run(topology)


@pytest.mark.parametrize("window", [tumbling(seconds=10, field="at"), sessions(gap=9, field="at")])
@pytest.mark.parametrize("time", [inf, -inf])
def test_a_record_at_an_infinite_time_fails_alone_and_ends_no_window(
    window: AnyWindow, time: float, tmp_path: Path
) -> None:
    numbers = []
    for first in (0, 100):
        topology, state = Topology("clicks"), SqliteState(tmp_path / "clicks.db")
        times = [first + 1, time, first + 2]
        retry = Retry(attempts=1, dead_letters=tmp_path / "dead.jsonl")
        clicks = topology.spout("clicks", Paced(*times), retry=retry)
        counts = clicks.window(window, count(), state=state)
        counts.shuffle().bolt("kept", Kept)
        numbers += [number for _, number in run(topology).results["kept"][0]]
    assert numbers == [2, 2]
    letters = (tmp_path / "dead.jsonl").read_text().splitlines()
    assert ["inf is no event time" in letter for letter in letters] == [True, True]
