"""Keyed streams: windows, a join, keyed states and totals, while processes are killed.

    sunshower experiment run examples/experiments/keyed_streams.py --cluster ray

Clicks are counted by user in windows, in a keyed state and in totals, and joined with purchases,
all with state in SQLite. Every `kill_s` seconds a random process gets a SIGKILL. The results are
compared with those of a plain program. Look for: no result is missing, and no count is lower than
in the plain program; replays may make counts higher.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, NamedTuple

from sunshower import Bolt, Context, KeyState, Spout, Topology, count, tumbling
from sunshower.experiments import (
    AtLeastOnce,
    CheckResult,
    EachEdgeOnce,
    Ending,
    Experiment,
    Facts,
    History,
    NoPrematureAck,
    Recovers,
    Step,
    What,
    anybody,
    every,
    kill,
    until,
)
from sunshower.state import SqliteState

TOTAL, WINDOW, WITHIN = 1_200, 20, 1
FOLDER = TemporaryDirectory(prefix="keyed-streams-", ignore_cleanup_errors=True)  # of all runs


class Event(NamedTuple):
    user: str
    at: int


def events(kind: str) -> list[Event]:
    """The same in every process; their times are in order."""
    draw = Random(kind)
    return [Event(draw.choice("abcdefgh"), n // 2) for n in range(TOTAL)]


class Events(Spout[Event]):
    def __init__(self, kind: str, rate: float) -> None:
        self.events, self.rate = events(kind), rate

    def open(self, context: Context) -> None:
        self.context = context

    def records(self) -> Iterator[Event | None]:
        clock, done = self.context.clock, self.context.committed
        begun_s = clock.now()
        for number, event in enumerate(self.events):
            while clock.now() < begun_s + (number - done) / self.rate:
                yield None
            yield event


def visits(event: Event, state: KeyState[int]) -> Iterator[tuple[str, int]]:
    state.value = (state.value or 0) + 1
    yield event.user, state.value


class Note(Bolt[Any, None]):
    """Writes results to the history: the last field of a row under its kind and other fields."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def prepare(self, context: Context) -> None:
        self.context = context

    def process(self, row: Any) -> None:
        self.context.wrote((self.kind, *row[:-1]), row[-1])


def topology(rate: float) -> Topology:
    folder = Path(mkdtemp(dir=FOLDER.name))  # each run begins with empty states
    topology = Topology("keyed-streams", workers=3, attempts_max=1_000)
    clicks = topology.spout("clicks", Events("clicks", rate))
    buys = topology.spout("buys", Events("buys", rate))
    by_user, window = clicks.group_by("user"), tumbling(seconds=WINDOW, field="at")
    results = {
        "windows": by_user.window(window, count(), state=SqliteState(folder / "windows.db")),
        "visits": by_user.process(
            visits, fields=("user", "visits"), state=SqliteState(folder / "visits.db")
        ),
        "totals": by_user.aggregate(count(), state=SqliteState(folder / "totals.db")),
        "joined": clicks.join(
            buys,
            "user",
            within=WITHIN,
            field="at",
            fields=("user", "clicked", "bought"),
            state=SqliteState(folder / "joined.db"),
        ),
    }
    for kind, rows in results.items():
        rows.shuffle().bolt(f"note-{kind}", Note(kind))
    return topology


def plain() -> Counter[tuple[Any, ...]]:
    """The lowest counts that the topology may write: (kind, key …) → count."""
    clicks, buys, results = events("clicks"), events("buys"), Counter[tuple[Any, ...]]()
    for user, at in clicks:
        window = at - at % WINDOW + WINDOW
        results.update([("windows", user, window), ("visits", user), ("totals", user)])
    pairs = ((user, at, other.at) for user, at in clicks for other in buys if other.user == user)
    return results + Counter({("joined", *p): 1 for p in pairs if abs(p[1] - p[2]) <= WITHIN})


class SameResults:
    """Every result of a plain program was written, and no count is lower."""

    name = "same-results"

    def check(self, history: History, facts: Facts) -> CheckResult:
        written = Counter[tuple[Any, ...]]()
        for key, value in history.rows(What.WROTE).details:
            if key[0] == "joined":
                written[*key, value] = 1
            else:
                written[tuple(key)] = max(written[tuple(key)], value)
        wanted = plain()
        less = [key for key, times in wanted.items() if written[key] < times]
        more = sum(written[key] > times for key, times in wanted.items())
        wrong = [*less, *(written.keys() - wanted.keys())]
        said = [f"{len(wrong)} results are missing, too low or invented: {wrong[:3]}"] * bool(wrong)
        holds = f"{len(wanted):,} results, {more} of them higher because of replays"
        if facts.ending is not Ending.FINISHED:
            return CheckResult(holds, unknown=[*said, "it did not finish"])
        return CheckResult(holds, broken=said)


def plan(rate: float, kill_s: float) -> Iterator[Step]:
    return until(TOTAL / rate, every(kill_s, kill(anybody())))


experiment = Experiment(
    name="keyed-streams",
    about="Windows, joins, states and totals lose nothing while processes are killed.",
    topology=topology,
    plan=plan,
    checkers=[AtLeastOnce(), NoPrematureAck(), EachEdgeOnce(), SameResults(), Recovers(60)],
    parameters={"rate": 30.0, "kill_s": 2.0},
)
