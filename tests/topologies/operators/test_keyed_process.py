"""Keyed processes: results, rollback after failures, and wrong declarations."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sunshower import (
    Bolt,
    Cause,
    Context,
    KeyState,
    Records,
    Retry,
    Spout,
    Topology,
    batch,
    run_inline,
)
from sunshower.clock import ManualClock
from sunshower.errors import RecordMismatch, TopologyError, UnknownField
from sunshower.runtime.inline import Finished
from sunshower.state import MemoryState, SqliteState
from sunshower.topologies.streams import GroupedRecords


class Click(NamedTuple):
    user: str
    second: int


@dataclass
class Visit:
    first: int
    last: int
    clicks: int = 1


class Session(NamedTuple):
    user: str
    seconds: int
    clicks: int


CLICKS = [Click("abcde"[n * n % 5], n * 7) for n in range(300)]
POISON = Click("a", -1)


def sessions(click: Click, visit: KeyState[Visit]) -> Iterator[Session]:
    """Ends a session when there was no click for 20 seconds."""
    now = visit.value
    if now is not None and click.second - now.last > 20:
        yield Session(click.user, now.last - now.first, now.clicks)
        now = None
    if now is None:
        visit.value = Visit(click.second, click.second)
    else:
        now.last, now.clicks = click.second, now.clicks + 1


def sessions_of(clicks: list[Click]) -> list[Session]:
    """Return the sessions as a plain program computes them."""
    states: dict[str, KeyState[Visit]] = {}
    rows: list[Session] = []
    for click in clicks:
        rows += sessions(click, states.setdefault(click.user, KeyState(None)))
    return rows


def seconds_of(clicks: list[Click]) -> dict[str, list[int]]:
    """The seconds of the clicks of each user."""
    seconds: dict[str, list[int]] = {}
    for click in clicks:
        seconds.setdefault(click.user, []).append(click.second)
    return seconds


class Kept(Bolt[Any, None]):
    """Returns its records as its result."""

    def prepare(self, context: Context) -> None:
        self.records: list[Any] = []

    def process(self, record: Any) -> None:
        self.records.append(record)

    def result(self) -> list[Any]:
        return self.records


def click_topology(
    process: Callable[[GroupedRecords[Click]], Any],
    clicks: Any = CLICKS,
    retry: Retry | None = None,
    **settings: Any,
) -> Topology:
    topology = Topology("clicks", **settings)
    source = clicks if isinstance(clicks, Spout) else Records(clicks, type=Click)
    stream = topology.spout("clicks", source, retry=retry)
    process(stream.group_by("user")).shuffle().bolt("kept", Kept)
    return topology


def run(topology: Topology) -> Finished:
    return run_inline(topology.graph(), clock=ManualClock())


def states(done: Finished, name: str) -> dict[Any, Any]:
    return {key: value for task in done.results[name] for key, value in task.items()}


def number(click: Click, seen: KeyState[int]) -> list[Session]:
    seen.value = (seen.value or 0) + 1
    return [Session(click.user, click.second, seen.value)]


def counted(click: Click, seen: KeyState[int]) -> None:
    seen.value = (seen.value or 0) + 1


# ---- results ------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("stored", [False, True])
def test_sessions_are_those_of_a_plain_program(
    parallelism: int, stored: bool, tmp_path: Path
) -> None:
    state = SqliteState(tmp_path / "clicks.db") if stored else None
    done = run(click_topology(lambda c: c.process(sessions, state=state, parallelism=parallelism)))
    (rows,) = done.results["kept"]
    assert sorted(rows) == sorted(sessions_of(CLICKS))
    assert len(rows) > 50


def test_states_are_the_result_or_in_the_store(tmp_path: Path) -> None:
    state = SqliteState(tmp_path / "clicks.db")
    done = run(click_topology(lambda c: c.process(number, state=state, parallelism=2)))
    assert done.results["number"] == [None, None]
    assert dict(state.items()) == Counter(click.user for click in CLICKS)
    run(click_topology(lambda c: c.process(number, state=state, parallelism=2)))
    assert dict(state.items())["a"] == 2 * sum(click.user == "a" for click in CLICKS)
    done = run(click_topology(lambda c: c.process(number)))
    assert states(done, "number") == Counter(click.user for click in CLICKS)


def test_a_function_that_emits_nothing_has_no_stream() -> None:
    topology = Topology("clicks")
    clicks = topology.spout("clicks", Records(CLICKS, type=Click))
    nothing: Any = clicks.group_by("user").process(counted)
    assert states(run(topology), "counted") == Counter(click.user for click in CLICKS)
    with pytest.raises(TopologyError, match="there is no such stream"):
        nothing.shuffle()


def test_a_state_can_be_assigned_changed_in_place_and_removed() -> None:
    def change(click: Click, state: KeyState[dict[str, list[int]]]) -> list[tuple[str, Any]]:
        before = deepcopy(state.value)
        if click.second == 0:
            state.value = {"seconds": []}
        elif click.second == 9:
            state.value = None
        elif state.value is not None:
            state.value["seconds"].append(click.second)
        return [(click.user, before)]

    clicks = [Click("a", second) for second in (0, 1, 2, 9, 5, 0)]
    done = run(click_topology(lambda c: c.process(change, fields=["user", "before"]), clicks))
    (rows,) = done.results["kept"]
    seen = [{"seconds": []}, {"seconds": [1]}, {"seconds": [1, 2]}]
    assert [before for _, before in rows] == [None, *seen, None, None]
    assert states(done, "change") == {"a": {"seconds": []}}


def test_an_object_or_a_lambda_can_process_groups_of_several_fields() -> None:
    class Adds:
        def prepare(self, context: Context) -> None:
            self.add = 10

        def __call__(self, click: Click, total: KeyState[int]) -> Iterator[Session]:
            total.value = (total.value or 0) + self.add
            yield Session(click.user, total.value, 0)

    topology = Topology("clicks")
    clicks = topology.spout("clicks", Records([Click("a", 1), Click("a", 1)], type=Click))
    pairs = clicks.group_by("user", "second")
    pairs.process(Adds()).shuffle().bolt("adds", Kept)
    pairs.process(lambda click, _: [(click.user,)], fields=["user"])
    done = run(topology)
    assert states(done, "Adds") == {("a", 1): 20}
    assert done.results["adds"] == [[Session("a", 10, 0), Session("a", 20, 0)]]
    assert states(done, "process") == {}


# ---- failures -----------------------------------------------------------------------------------


def raises(click: Click, seen: KeyState[list[int]]) -> Iterator[Session]:
    if seen.value is None:
        seen.value = []
    seen.value.append(click.second)
    yield Session(click.user, 0, 0)
    if click == POISON:
        raise ValueError("poison")


def misfit(click: Click, seen: KeyState[list[int]]) -> Iterator[Session]:
    seen.value = [*(seen.value or []), click.second]
    wrong: Any = click
    yield wrong if click == POISON else Session(click.user, 0, 0)


def unserialisable(click: Click, seen: KeyState[Any]) -> Iterator[Session]:
    seen.value = print if click == POISON else [*(seen.value or []), click.second]
    yield Session(click.user, 0, 0)


def correct(click: Click, seen: KeyState[list[int]]) -> Iterator[Session]:
    seen.value = [*(seen.value or []), click.second]
    yield Session(click.user, click.second, 0)
    yield Session(click.user, click.second, 0)


def refuse(session: Session) -> Session:
    if session.seconds == POISON.second:
        raise ValueError("poison")
    return session


@pytest.mark.parametrize(
    "process",
    [
        lambda c, state: c.process(raises, state=state, name="s"),
        lambda c, state: c.process(misfit, state=state, name="s"),
        lambda c, state: c.process(unserialisable, state=state, name="s"),
        lambda c, state: c.process(correct, state=state, name="s").map(refuse),
    ],
    ids=["raises", "misfit", "unserialisable", "downstream"],
)
def test_a_record_that_fails_does_not_change_the_state_and_fails_alone(
    process: Any, tmp_path: Path
) -> None:
    state = SqliteState(tmp_path / "clicks.db")
    clicks = [*CLICKS[:150], POISON, *CLICKS[150:]]
    retry = Retry(attempts=3, initial_s=0.01, dead_letters=tmp_path / "dead.jsonl")
    done = run(click_topology(lambda c: process(c, state), clicks, retry))
    letters = [line for f in tmp_path.glob("dead*") for line in f.read_text().splitlines()]
    assert [json.loads(line)["record"] for line in letters] == [POISON._asdict()]
    assert done.snapshot.component("clicks").causes == {Cause.EXCEPTION.value: 3}
    assert dict(state.items()) == seconds_of(CLICKS)


def test_a_key_that_cannot_be_stored_fails_alone(tmp_path: Path) -> None:
    state = SqliteState(tmp_path / "clicks.db")
    no_key: Any = 1j
    clicks = [*CLICKS[:150], Click(no_key, 1), *CLICKS[150:]]
    retry = Retry(attempts=2, initial_s=0.01, dead_letters=tmp_path / "dead.jsonl")
    done = run(click_topology(lambda c: c.process(number, state=state), clicks, retry))
    assert done.snapshot.component("clicks").dead == 1
    assert dict(state.items()) == Counter(click.user for click in CLICKS)


def test_a_shared_batch_that_fails_does_not_change_the_state(tmp_path: Path) -> None:
    """Rows of a @batch function are one batch: if one row fails, all fail."""
    state = MemoryState()

    def once(total: Any, seen: KeyState[int]) -> list[tuple[str, int]]:
        seen.value = (seen.value or 0) + 1
        if total[0] == POISON.second:
            raise ValueError("poison")
        return [total]

    @batch
    def counted(table: Any) -> Any:
        totals = table.group_by("second").aggregate([([], "count_all")])
        return totals.rename_columns(["second", "count"])

    def assemble(clicks: GroupedRecords[Click]) -> Any:
        totals = clicks.stream.flat_map(counted, fields=["second", "count"])
        return totals.group_by("second").process(once, state=state, fields=["second", "count"])

    retry = Retry(attempts=2, initial_s=0.01, dead_letters=tmp_path / "dead.jsonl")
    done = run(click_topology(assemble, [*CLICKS[:150], POISON, *CLICKS[150:]], retry))
    assert done.snapshot.component("clicks").dead == 1
    assert dict(state.items()) == dict.fromkeys([click.second for click in CLICKS], 1)


# ---- wrong declarations -------------------------------------------------------------------------


def takes_dict(click: Click, state: dict[str, int]) -> Iterator[Session]:
    yield Session(click.user, 0, 0)


def takes_one(click: Click) -> Iterator[Session]:
    yield Session(click.user, 0, 0)


def takes_session(session: Session, state: KeyState[int]) -> Iterator[Session]:
    yield session


def keeps_files(click: Click, state: KeyState[list[Path]]) -> Iterator[Session]:
    yield Session(click.user, 0, 0)


async def waits(click: Click, state: KeyState[int]) -> None: ...


class Class:
    def __call__(self, click: Click, state: KeyState[int]) -> None: ...


@pytest.mark.parametrize(
    ("assemble", "error", "message"),
    [
        (lambda c: c.process(takes_dict), RecordMismatch, "KeyState[dict[str, int]]"),
        (lambda c: c.process(takes_one), TopologyError, "must take a record and the state"),
        (lambda c: c.process(takes_session), RecordMismatch, "it reads Session, but the stream"),
        (lambda c: c.process(keeps_files), RecordMismatch, "cannot travel to another process"),
        (lambda c: c.process(waits), TopologyError, "waits is asynchronous"),
        (lambda c: c.process(Class), TopologyError, "Class is no function of a record and a"),
        (lambda c: c.process(3), TopologyError, "3 is no function of a record and a state"),
        (lambda c: c.process(number, state="x.db"), TopologyError, "'x.db' is not a state"),
        (lambda c: c.process(number, ttl_s=0), TopologyError, "ttl_s is 0"),
        (lambda c: c.process(number, version=0), TopologyError, "version is 0"),
        (lambda c: c.process(number, migrate=3), TopologyError, "migrate is 3"),
        (lambda c: c.process(number, ttl=3), TopologyError, "there is no setting 'ttl'"),
        (lambda c: c.stream.process(number), TopologyError, 'as in .group_by("user").process'),
        (lambda c: c.stream.group_by("age").process(number), UnknownField, "user, second"),
    ],
)
def test_wrong_declarations_are_refused(
    assemble: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as raised:
        click_topology(assemble)
    assert message in str(raised.value)
    assert "topology 'clicks', stream 'default' of 'clicks'" in str(raised.value)


def test_a_state_whose_name_would_depend_on_others_is_refused(tmp_path: Path) -> None:
    state = SqliteState(tmp_path / "clicks.db")
    clicks = Topology("clicks").spout("clicks", Records(CLICKS, type=Click))
    clicks.group_by("user").process(number, state=state)
    with pytest.raises(TopologyError, match="give this state a name="):
        clicks.group_by("second").process(number, state=state)
