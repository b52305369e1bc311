"""Patterns in streams: what is emitted, under failures and on a real Ray; wrong declarations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sunshower import (
    JsonLines,
    Match,
    Number,
    PatternStep,
    Records,
    Topology,
    count,
    run_inline,
    tumbling,
)
from sunshower.clock import ManualClock
from sunshower.config import Internals
from sunshower.errors import RecordMismatch, TopologyError, TopologyFailed
from sunshower.runtime.plan import Layout
from sunshower.state import MemoryState, SqliteState
from sunshower.topologies.operators.state_shapes import states_of
from tests.actors.programs.evidence import Held, finish_with_kills, submitted
from tests.seeds import seeds
from tests.topologies.operators.test_keyed_process import Kept
from tests.topologies.operators.windows.test_windows import Click, Paced
from tests.topologies.operators.windows.window_swarm import (
    DISORDER,
    Clicks,
    Note,
    clicks_of,
    run_with_faults,
    written_values,
)

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster


@dataclass(frozen=True)
class Login:
    user: str
    at: float
    ok: bool


@dataclass(frozen=True)
class Alarm:
    user: str
    since: float
    at: float


def alarm(match: Match[Login]) -> Alarm:
    first, last = match["failed"][0], match["failed"][-1]
    return Alarm(first.user, first.at, last.at)


def failed(login: Login) -> bool:
    return not login.ok


def logins(*texts: str) -> Iterator[Login]:
    """One login a second of each user a, b …: "-" failed, "+" not, " " none."""
    for user, text in zip("abc", texts, strict=False):
        yield from (Login(user, at, sign == "+") for at, sign in enumerate(text) if sign != " ")


def alarms(text: str, *steps: PatternStep[Login], within: float = 60, **settings: Any) -> list[Any]:
    topology = Topology("logins", attempts_max=3)
    source = topology.spout("logins", Records([*logins(text)][::-1], type=Login))
    ordered = source.group_by("user").in_order("at", late=100)
    matches = ordered.match(*steps, within=within, select=alarm, **settings)
    matches.shuffle().bolt("kept", Kept)
    done = run_inline(topology.graph(), clock=ManualClock())
    return [(row.since, row.at) for row in done.results["kept"][0]]


THREE = PatternStep[Login]("failed", failed, times=3)


def test_three_failures_within_a_minute() -> None:
    assert alarms("--+--- -  -", THREE) == [(0, 3), (4, 7)]
    assert alarms("-   -   -", THREE, within=8) == []
    assert alarms("-   -  -", THREE, within=8) == [(0, 7)]


def test_a_failure_that_no_success_follows_is_emitted_by_the_watermark(tmp_path: Path) -> None:
    last = (
        PatternStep[Login]("failed", failed),
        PatternStep[Login]("ok", lambda login: login.ok, absent=True),
    )
    state = SqliteState(tmp_path / "match.db")
    assert alarms("-  +   -", *last, within=5, state=state) == [(7, 7)]
    assert dict(state.items()) == {}


def test_a_window_behind_a_match_has_every_match() -> None:
    """Its watermark is `within` behind, so the time of the first record is not late."""
    topology = Topology("logins")
    source = topology.spout("logins", Records([*logins("-" * 60)], type=Login))
    ordered = source.group_by("user").in_order("at")
    matches = ordered.match(THREE, within=60, select=alarm)
    minutes = matches.window(tumbling(seconds=6, field="since"), count())
    minutes.shuffle().bolt("kept", Kept)
    minutes.late.shuffle().bolt("late", Kept)
    done = run_inline(topology.graph(), clock=ManualClock())
    assert done.results["kept"][0] == [(end, 2) for end in range(6, 61, 6)]
    assert done.results["late"][0] == []


# ---- failures ------------------------------------------------------------------------------------


def has_time(click: Any) -> bool:
    return bool(click.at >= 0)


def later(click: Any, match: Match[Any]) -> bool:
    return bool(click.at > match["first"][0].at)


def with_next(match: Match[Any]) -> tuple[str, int, int]:
    first, second = match["first"][0], match["second"][0]
    return first.user, first.at, second.at


def alone(match: Match[Any]) -> tuple[str, int, int]:
    (first,) = match["first"]
    return first.user, first.at, -1


@seeds(200)
def test_matches_are_those_of_a_plain_program_whatever_fails(seed: int) -> None:
    """Of clicks of a user: those with the next later one within 6, and those without one. A click
    that its spout emits twice makes the same matches again."""
    topology = Topology(
        "clicks", workers=3, attempts_max=1_000, internals=Internals(peer_link_retry_s=0.5)
    )
    clicks = topology.spout("clicks", Clicks(seed), parallelism=2)
    ordered = clicks.group_by("user").in_order("at", DISORDER)
    settings: Any = {"state": MemoryState(), "parallelism": 2, "fields": ("user", "at", "next")}
    first = PatternStep[Any]("first", has_time)
    pairs = ordered.match(
        *(first, PatternStep("second", later)),
        **{"within": 6, "skip": "to_next", "select": with_next, "name": "pairs", **settings},
    )
    singles = ordered.match(
        *(first, PatternStep("second", later, absent=True)),
        **{"within": 6, "skip": "to_next", "select": alone, "name": "singles", **settings},
    )
    topology.bolt("note", Note, inputs=[pairs.shuffle(), singles.shuffle()])
    written = written_values(run_with_faults(seed, topology))
    times = {
        user: sorted({c.at for task in range(2) for c in clicks_of(seed, task) if c.user == user})
        for user in "abc"
    }
    expected = {
        (user, at): after if after is not None and after - at < 6 else -1
        for user in times
        for at, after in pairwise([*times[user], None])
        if at is not None
    }
    assert {place: {*values} for place, values in written.items()} == {
        place: {after} for place, after in expected.items()
    }, f"seed {seed}"


TOTAL, KEYS, WITHIN = 3_000, 3, 30
ROWS = ("key", "first", "last")


def of_number(number: Number) -> tuple[int, int]:
    return number.value % KEYS, number.value


def is_failure(value: int) -> bool:
    return value % 7 != 0 and value % 11 != 0


def fails_later(row: Any, match: Match[Any]) -> bool:
    """A number may come twice, if its worker dies before it is acked."""
    return is_failure(row[1]) and all(row[1] > other[1] for other in match["failed"])


@pytest.mark.long
def test_no_match_is_missing_or_wrong_although_workers_die(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    topology, path, gate = Topology("match", workers=2), tmp_path / "found.jsonl", tmp_path / "gate"
    numbers = topology.spout("numbers", Held(TOTAL, gate), event_time="value")
    rows = numbers.map(of_number, fields=("key", "at"))
    matches = (
        rows.group_by("key")
        .in_order("at")
        .match(
            PatternStep("failed", fails_later, times=3),
            within=WITHIN,
            skip="to_next",
            select=lambda match: (*match["failed"][0], match["failed"][2][1]),
            fields=ROWS,
            state=SqliteState(tmp_path / "match.db"),
            parallelism=2,
        )
    )
    matches.shuffle().bolt("store", JsonLines(path))
    with submitted(ray_cluster, topology, layout=Layout.PACK) as run:
        finish_with_kills(run, "numbers", TOTAL, run.plan.tasks_of("match"), gate)
    written = {tuple(json.loads(line).values()) for line in path.read_text().splitlines()}
    expected = set()
    for key in range(KEYS):
        failures = [value for value in range(key, TOTAL, KEYS) if is_failure(value)]
        for first, last in zip(failures, failures[2:], strict=False):
            if last - first < WITHIN:
                expected.add((key, first, last))
    assert written == expected


# ---- upgrades ------------------------------------------------------------------------------------


def shape(*steps: PatternStep[Login], within: float = 60) -> Any:
    topology = Topology("logins")
    source = topology.spout("logins", Records([*logins("-")], type=Login))
    source.group_by("user").in_order("at").match(*steps, within=within, select=alarm)
    return states_of(topology.graph().components["match"])["match"]


def test_a_state_continues_only_with_the_same_steps() -> None:
    same = PatternStep[Login]("failed", lambda login: login.at > 3, times=3)  # of other conditions
    assert shape(THREE).differences(shape(same)) == []
    assert shape(THREE).differences(shape(PatternStep("failed", failed, times=4))) == ["operator"]
    assert shape(THREE).differences(shape(THREE, within=61)) == ["operator"]


def test_a_match_that_has_begun_is_not_continued_by_another_pattern(tmp_path: Path) -> None:
    state = SqliteState(tmp_path / "match.db")

    def run(source: Paced, *steps: PatternStep[Click]) -> None:
        topology = Topology("clicks", attempts_max=2)
        ordered = topology.spout("clicks", source).group_by("user").in_order("at")
        times = ordered.match(
            *steps, within=60, select=lambda match: (len(match),), fields=("n",), state=state
        )
        times.shuffle().bolt("kept", Kept)
        run_inline(topology.graph(), clock=ManualClock())

    def fits(click: Click) -> bool:
        if click.at == 3:
            raise ValueError("stop")
        return True

    with pytest.raises(TopologyFailed, match="stop"):
        run(Paced(1.0, 2.0, 3.0, 4.0), PatternStep("three", fits, times=3))
    with pytest.raises(TopologyFailed, match="begun with other steps or another within="):
        run(Paced(9.0), PatternStep("two", fits, times=2))


# ---- declarations --------------------------------------------------------------------------------


def test_wrong_declarations_say_what_helps() -> None:
    source = Topology("logins").spout("logins", Records([*logins("-")], type=Login))
    ordered = source.group_by("user").in_order("at")
    with pytest.raises(TopologyError, match="within is 0"):
        ordered.match(THREE, within=0, select=alarm)
    with pytest.raises(TopologyError, match="at least one record"):
        ordered.match(within=1, select=alarm)
    with pytest.raises(TopologyError, match="no setting 'ttl_s'"):
        ordered.match(THREE, within=1, select=alarm, ttl_s=3)  # type: ignore[call-arg]
    with pytest.raises(TopologyError, match="annotate"):
        ordered.match(THREE, within=1, select=lambda match: match["failed"][0])
    with pytest.raises(RecordMismatch, match="makes nothing"):
        ordered.match(THREE, within=1, select=nothing)
    with pytest.raises(TopologyError, match="asynchronous"):
        ordered.match(THREE, within=1, select=looked_up)


def nothing(match: Match[Login]) -> None: ...


async def looked_up(match: Match[Login]) -> Alarm:
    return alarm(match)
