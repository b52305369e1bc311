"""Bolts with a keyed state: results, rollback after failures, and wrong declarations."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sunshower import (
    Bolt,
    Collector,
    Context,
    KeyState,
    KeyValueState,
    Records,
    Retry,
    Topology,
    Tuple,
)
from sunshower.config import Internals
from sunshower.errors import RecordMismatch, TopologyError, TopologyFailed
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState, SqliteState
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from tests.topologies.operators.test_keyed_process import (
    CLICKS,
    POISON,
    Click,
    Kept,
    Session,
    Visit,
    run,
    seconds_of,
    sessions_of,
)
from tests.topologies.operators.test_keyed_state_recovery import Slowly


class Sessions(Bolt[Click, Session]):
    """Ends a session when there was no click for 20 seconds."""

    state: KeyValueState[str, Visit]

    def process(self, click: Click) -> Iterator[Session]:
        visit = self.state.get(click.user)
        if visit is not None and click.second - visit.last > 20:
            yield Session(click.user, visit.last - visit.first, visit.clicks)
            visit = None
        if visit is None:
            self.state[click.user] = Visit(click.second, click.second)
        else:
            visit.last, visit.clicks = click.second, visit.clicks + 1


class ManualSessions(Bolt[Click, Session]):
    """The same as `Sessions`, with anchors and acks."""

    state: KeyValueState[str, Visit]

    def execute(self, tuple: Tuple[Click], out: Collector[Any]) -> None:
        for session in Sessions.process(self, tuple.record):  # type: ignore[arg-type]
            out.emit(session, tuple)
        out.ack(tuple)


def click_topology(
    bolt: Any, clicks: Any = CLICKS, retry: Retry | None = None, tasks: int = 1, **settings: Any
) -> Topology:
    topology = Topology("clicks")
    stream = topology.spout("clicks", Records(clicks, type=Click), retry=retry)
    outputs: Any = stream.fields("user").bolt("bolt", bolt, tasks, **settings)
    if topology.component("bolt").streams:
        outputs.shuffle().bolt("kept", Kept)
    return topology


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("bolt", [Sessions, Sessions(), ManualSessions])
@pytest.mark.parametrize("stored", [False, True])
def test_sessions_are_those_of_a_plain_program(
    stored: bool, bolt: Any, tasks: int, tmp_path: Path
) -> None:
    state = SqliteState(tmp_path / "clicks.db") if stored else None
    done = run(click_topology(bolt, tasks=tasks, state=state))
    assert sorted(done.results["kept"][0]) == sorted(sessions_of(CLICKS))
    results = [result for result in done.results["bolt"] if result is not None]
    assert len(results) == (0 if stored else tasks)
    in_memory = {key for task in results for key in task}
    assert (set(dict(state.items())) if state else in_memory) == set("abe")


def test_a_state_is_a_mapping_of_copies() -> None:
    store = KeyedStore(None, "lists", "here")
    store.open(Context("t", "lists", 0, 0, 1))
    state = KeyValueState[str, list[int]](store)
    state["a"] = first = [1]
    state.setdefault("b", []).append(2)
    state.keep()
    first.append(9)
    assert dict(state) == {"a": [1], "b": [2]}
    state.drop()
    state["a"].append(3)
    assert (state["a"], len(state), "c" in state, state.pop("b")) == ([1, 3], 2, False, [2])
    assert dict(state) == {"a": [1, 3]}
    with pytest.raises(KeyError):
        del state["b"]
    state.drop()
    assert dict(state) == {"a": [1], "b": [2]}
    state.drop()
    with state.apart():
        del state["a"]
        state["b"] = None  # type: ignore[assignment]
    assert dict(state) == {}


# ---- failures -----------------------------------------------------------------------------------


class Gathers(Bolt[Click, Session]):
    """Keeps all seconds of a user; the poison changes the state first, and then fails."""

    state: KeyValueState[str, Any]

    def process(self, click: Click) -> Iterator[Session]:
        self.state.setdefault(click.user, []).append(click.second)
        yield Session(click.user, 0, 0)
        if click == POISON:
            yield from self.fail(click)

    def fail(self, click: Click) -> Iterator[Session]:
        raise ValueError("poison")


class Misfit(Gathers):
    def fail(self, click: Click) -> Iterator[Session]:
        wrong: Any = click
        yield wrong


class Unserialisable(Gathers):
    def fail(self, click: Click) -> Iterator[Session]:
        self.state[click.user] = print
        yield Session(click.user, 0, 0)


class HalfUnserialisable(Gathers):
    """Of two keys that the call changes, the second one cannot be stored."""

    def fail(self, click: Click) -> Iterator[Session]:
        self.state["another"] = print
        yield Session(click.user, 0, 0)


class Returns(Bolt[Click, Session]):
    state: KeyValueState[str, Any]

    def process(self, click: Click) -> list[Session]:
        self.state.setdefault(click.user, []).append(click.second)
        wrong: Any = Session(click.user, 0, 0)
        return wrong if click == POISON else [wrong]


class ManualGathers(Bolt[Click, Session]):
    state: KeyValueState[str, Any]

    def execute(self, tuple: Tuple[Click], out: Collector[Any]) -> None:
        click = tuple.record
        self.state.setdefault(click.user, []).append(click.second)
        out.emit(Session(click.user, 0, 0), tuple)
        out.ack(tuple)
        if click == POISON:
            raise ValueError("poison")


class Sink(Bolt[Click, None]):
    state: KeyValueState[str, Any]

    def process(self, click: Click) -> None:
        self.state.setdefault(click.user, []).append(click.second)
        if click == POISON:
            raise ValueError("poison")


@pytest.mark.parametrize(
    "bolt",
    [Gathers, Misfit, Unserialisable, HalfUnserialisable, Returns, ManualGathers, Sink],
    ids=lambda b: b.__name__,
)
def test_a_record_that_fails_does_not_change_the_state_and_fails_alone(
    bolt: Any, tmp_path: Path
) -> None:
    state = SqliteState(tmp_path / "clicks.db")
    clicks = [*CLICKS[:150], POISON, *CLICKS[150:]]
    retry = Retry(attempts=3, initial_s=0.01, dead_letters=tmp_path / "dead.jsonl")
    run(click_topology(bolt, clicks, retry, state=state))
    letters = [line for f in tmp_path.glob("dead*") for line in f.read_text().splitlines()]
    assert [json.loads(line)["record"] for line in letters] == [POISON._asdict()]
    assert dict(state.items()) == seconds_of(CLICKS)


def test_a_batch_whose_flush_raises_does_not_change_the_state() -> None:
    class Once(Bolt[Click, None]):
        state: KeyValueState[str, int]
        failed = False

        def process(self, click: Click) -> None:
            self.state[click.user] = self.state.get(click.user, 0) + 1

        def flush(self) -> None:
            self.state["flushed"] = 1
            if not self.failed:
                self.failed = True
                raise ValueError("not yet")

    state = MemoryState()
    run(click_topology(Once, retry=Retry(initial_s=0.01), state=state))
    assert dict(state.items()) == {**Counter(click.user for click in CLICKS), "flushed": 1}


def test_prepare_and_tick_may_change_the_state_and_a_tick_that_raises_changes_nothing() -> None:
    class Ticks(Bolt[Click, None]):
        state: KeyValueState[str, int]
        tick_s = 1.0

        def prepare(self, context: Context) -> None:
            self.state["prepared"] = 1

        def process(self, click: Click) -> None:
            self.state[click.user] = self.state.get(click.user, 0) + 1

        def tick(self) -> None:
            ticks = self.state["ticks"] = self.state.get("ticks", 0) + 1
            if ticks == 2:
                raise ValueError("it stays 1")

    state, topology = MemoryState(), Topology("clicks")
    clicks = topology.spout("clicks", Slowly())
    clicks.fields("user").bolt("bolt", Ticks, state=state)
    with SimCluster(1) as cluster:
        assert cluster.submit(topology.graph()).wait(120)
    assert dict(state.items()) == {"prepared": 1, "a": 20, "b": 1, "ticks": 1}


class Many(Bolt[Click, Session]):
    state: KeyValueState[str, list[int]]

    def process(self, click: Click) -> Iterator[Session]:
        seconds = self.state.setdefault(click.user, [])
        seconds.append(click.second)
        for piece in range(1_500):
            yield Session(click.user, piece, len(seconds))


def many(click: Click, seen: KeyState[list[int]]) -> Iterator[Session]:
    seen.value = [*(seen.value or []), click.second]
    for piece in range(1_500):
        yield Session(click.user, piece, len(seen.value))


@pytest.mark.parametrize(
    "declare",
    [
        lambda clicks: clicks.fields("user").bolt("bolt", Many),
        lambda clicks: clicks.group_by("user").process(many, name="bolt"),
    ],
)
def test_a_record_whose_outputs_are_sent_in_pieces_changes_its_state_once(declare: Any) -> None:
    topology = Topology(
        "clicks", window_records_max=400, internals=Internals(frame_records_max=100)
    )
    clicks = topology.spout("clicks", Records(CLICKS[:20], type=Click))
    declare(clicks).shuffle().bolt("kept", Kept)
    done = run(topology)
    assert len(done.results["kept"][0]) == 20 * 1_500
    assert done.results["bolt"] == [seconds_of(CLICKS[:20])]


def test_a_state_has_a_time_to_live_and_can_be_migrated(tmp_path: Path) -> None:
    state = MemoryState()
    run(click_topology(Sink, CLICKS[:2], state=state))
    migrated = {"version": 2, "migrate": lambda version, _: [version]}
    topology = click_topology(Sink, CLICKS[2:3], state=state, ttl_s=5, **migrated)
    assert topology.component("bolt").tick_s == 5
    run(topology)
    assert dict(state.items()) == {"a": [1], "b": [1], "e": [14]}


# ---- wrong declarations -------------------------------------------------------------------------


def sink(click: Click) -> None: ...


class Files(Bolt[Click, None]):
    state: KeyValueState[str, list[Path]]

    def process(self, click: Click) -> None: ...


class OneKey(Bolt[Click, None]):
    state: KeyState[int]

    def process(self, click: Click) -> None: ...


class Optional(Bolt[Click, None]):
    state: KeyValueState[str, int] | None = None

    def process(self, click: Click) -> None: ...


@pytest.mark.parametrize(
    ("bolt", "settings", "error", "message"),
    [
        (sink, {"state": MemoryState()}, TopologyError, "state is for a Bolt whose class declares"),
        (Kept, {"ttl_s": 5}, TopologyError, "ttl_s is for a Bolt whose class declares a state"),
        (OneKey, {}, TopologyError, "is not the annotation of a keyed state"),
        (Optional, {}, TopologyError, "is not the annotation of a keyed state"),
        (Kept, {"nonsense": 5}, TopologyError, "there is no setting 'nonsense'"),
        (Files, {}, RecordMismatch, "cannot travel to another process"),
        (Sink, {"state": "x.db"}, TopologyError, "'x.db' is not a state"),
        (Sink, {"ttl_s": 0}, TopologyError, "ttl_s is 0"),
        (Sink, {"version": 0}, TopologyError, "version is 0"),
    ],
)
def test_wrong_declarations_are_refused(
    bolt: Any, settings: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as raised:
        click_topology(bolt, **settings)
    assert message in str(raised.value)
    assert "topology 'clicks', bolt 'bolt'" in str(raised.value)


def test_several_tasks_need_a_fields_grouping() -> None:
    clicks = Topology("clicks").spout("clicks", Records(CLICKS, type=Click))
    clicks.shuffle().bolt("one", Sink)
    for grouped in (clicks.shuffle(), clicks.partial_key("user"), clicks.all()):
        with pytest.raises(TopologyError, match=r"bolt 'two': it has a state for each key"):
            grouped.bolt("two", Sink, 2)


class Pair(NamedTuple):
    first: Any
    second: int


class Seen(Bolt[Pair, None]):
    state: KeyValueState[Any, int]

    def process(self, pair: Pair) -> None:
        self.state[pair.first] = pair.second


def seen(pair: Pair, state: KeyState[int]) -> None:
    state.value = pair.second


def never(key: Any, state: KeyState[int]) -> None: ...


@pytest.mark.parametrize("reserved", [{"sunshower": "about"}, ["__sunshower:timer", "a"]])
@pytest.mark.parametrize("how", ["bolt", "process", "timer"])
def test_a_reserved_key_fails_its_record_alone(how: str, reserved: Any, tmp_path: Path) -> None:
    for _ in range(2):
        topology, letters = Topology("pairs"), tmp_path / "dead.jsonl"
        letters.unlink(missing_ok=True)
        pairs = topology.spout(
            "pairs",
            Records([Pair("a", 1), Pair(reserved, 2), Pair("b", 3)], type=Pair),
            retry=Retry(attempts=1, dead_letters=letters),
        )
        state = SqliteState(tmp_path / "pairs.db")
        if how == "bolt":
            pairs.fields("first").bolt("seen", Seen, state=state)
        else:
            on_timer = {"on_timer": never} if how == "timer" else {}
            pairs.group_by("first").process(seen, state=state, **on_timer)
        run(topology)
        assert dict(state.items()) == {"a": 1, "b": 3}
        assert "cannot be the key of a state" in letters.read_text()


class AssignsInPrepare(Seen):
    def prepare(self, context: Context) -> None:
        self.state = {}  # type: ignore[assignment]


class AssignsInProcess(Seen):
    def process(self, pair: Pair) -> None:
        self.state = {pair.first: pair.second}  # type: ignore[assignment]


@pytest.mark.parametrize("kind", [AssignsInPrepare, AssignsInProcess])
def test_a_bolt_that_replaces_its_state_is_refused_instead_of_losing_it(kind: Any) -> None:
    topology = Topology("pairs", attempts_max=1, task_errors_max=1)
    pairs = topology.spout("pairs", Records([Pair("a", 1)], type=Pair))
    pairs.fields("first").bolt("seen", kind, state=MemoryState())
    with pytest.raises(TopologyFailed, match=r"dict to self\.state.*change the entries"):
        run(topology)
