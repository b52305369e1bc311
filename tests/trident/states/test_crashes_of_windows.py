"""A process ends at each write of the states of windows: each row and each result counts once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sunshower import Topology, collect, count, run_inline, sessions, sum_, tumbling
from sunshower.clock import ManualClock
from sunshower.trident import FixedBatchSpout, InMemory, StateKind, batches
from tests.trident.rigs.every_store import state_in, stores
from tests.trident.rigs.moving_states import Life, MortalState, ProcessEnded, stored_name


class Click(NamedTuple):
    user: str
    at: float
    number: int


def second_of(number: int) -> float:
    """Twenty clicks that come at most two seconds late, with a pause."""
    return number + 10.0 * (number > 11) - 2 * (number % 4 == 3)


CLICKS = [Click("ab"[number % 3 % 2], second_of(number), number) for number in range(20)]
NAMES = ("visits", "spans", "panes", "sums", "full", "visited", "spanned", "filled")
RESULTS = ("visited", "spanned", "filled", "sums")  # what has the rows of windows


def is_full(row: Any) -> bool:
    return bool(row[2] >= 3)


class Program:
    """Sessions, a window behind them, windows that are updated, and that end by their values."""

    def __init__(self, store: Callable[[], Any]) -> None:
        self.states = {name: store() for name in NAMES}
        self.batches = InMemory()

    def topology(self, life: Life, tasks: int) -> Topology:
        topology = Topology("crashing")

        def settings(name: str, tasks: int = tasks) -> Any:
            inner = self.states[name]
            state = MortalState(inner, life, inner.kind, stored_name(inner))
            return {"state": state, "name": name, "parallelism": tasks}

        spout = FixedBatchSpout(CLICKS, 4, type=Click)
        users = batches(topology, "clicks", spout, store=self.batches).group_by("user")
        numbers, late = collect("number", name="numbers"), {"field": "at", "late": 2}
        visits = users.window(sessions(gap=3, **late), numbers, **settings("visits"))
        spans = visits.group_by("user").window(
            tumbling(seconds=20, field="window"), collect("numbers"), **settings("spans")
        )
        panes = users.window(
            tumbling(seconds=4, field="at", allowed=4),
            sum_("number", name="n"),
            **settings("panes"),
        )
        panes.group_by("user").aggregate(sum_("n"), **settings("sums"))
        full = tumbling(seconds=10, until=is_full, **late)
        filled = users.window(full, count(name="n"), **settings("full"))
        for name, rows in {"visited": visits, "spanned": spans, "filled": filled}.items():
            last = rows.schema.fields[-1]
            rows.aggregate(count(), collect(last), collect("window"), **settings(name, 1))
        return topology

    def run(self, life: Life, tasks: int = 2) -> bool:
        """Run until the end, or until the process ends. Returns whether it is the end."""
        try:
            run_inline(self.topology(life, tasks).graph(), clock=ManualClock(), steps_max=50_000)
        except ProcessEnded:
            return False
        return True

    def outcome(self) -> dict[str, Any]:
        rows = {
            name: dict(self.states[name].items(stored_name(self.states[name]))) for name in RESULTS
        }
        return {
            name: {
                key: [sorted(each, key=repr) if isinstance(each, list) else each for each in value]
                if isinstance(value, list)
                else value
                for key, value in values.items()
                if key in ("a", "b", "$GLOBAL$")
            }
            for name, values in rows.items()
        }


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("kind", [StateKind.OPAQUE, StateKind.TRANSACTIONAL])
@pytest.mark.parametrize(
    ("store", "step"),
    [
        ("memory", 1),
        pytest.param("sqlite", 3, marks=pytest.mark.long),
        *(
            pytest.param(
                *server.values,
                9,  # a busy server takes more than the five minutes that a test has
                marks=(*server.marks, pytest.mark.long, pytest.mark.timeout(3_600)),
            )
            for server in stores()
        ),
    ],
)
def test_each_row_counts_once_when_the_process_ends_at_any_write(
    store: str,
    step: int,
    kind: StateKind,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    *,
    is_after: bool,
) -> None:
    """The next run has another number of tasks, or as many."""

    def program() -> Program:
        return Program(partial(state_in, request, store, tmp_path, kind))

    plain = program()
    assert plain.run(Life())
    expected = plain.outcome()
    assert expected["sums"] == {
        user: sum(click.number for click in CLICKS if click.user == user) for user in "ab"
    }
    for last in range(1, 1_000, step):
        ending = program()
        if ending.run(Life(last, is_after)):
            assert last > 40
            return
        assert ending.run(Life(), (2, 1, 3)[last // step % 3]), f"write {last}"
        assert ending.outcome() == expected, f"write {last}"
    raise AssertionError("the run never completes")
