"""What the end of all sources does with open windows: it ends them, or leaves them in the state."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sunshower import Records, Spout, Topology, collect, run_inline, sessions, sliding, tumbling
from sunshower.clock import VIRTUAL_DATE, ManualClock
from sunshower.errors import ConfigError, TopologyError
from sunshower.state import MemoryState, SqliteState
from sunshower.topologies.operators.windows.window_kinds import AnyWindow
from tests.topologies.operators.kinds import Kept
from tests.topologies.operators.windows.test_windows import Paced


class Click(NamedTuple):
    user: str
    at: float


def clicks(*times: float, user: str = "a") -> list[Click]:
    return [Click(user, time) for time in times]


def run(
    window: AnyWindow, sources: Sequence[Any], state: Any, clock: ManualClock | None = None
) -> tuple[list[Any], list[Any]]:
    """Run a topology with a spout for each list: the rows of its windows, and the late ones."""
    topology = Topology("clicks")
    spouts = [
        topology.spout(
            f"in-{number}", source if isinstance(source, Spout) else Records(source, type=Click)
        )
        for number, source in enumerate(sources)
    ]
    ended = (
        spouts[0]
        .merge(*spouts[1:])
        .group_by("user")
        .window(window, collect("at"), fields=("user", "window", "times"), state=state)
    )
    ended.shuffle().bolt("kept", Kept)
    ended.late.shuffle().bolt("late", Kept)
    results = run_inline(topology.graph(), clock=clock or ManualClock()).results
    return tuple(
        sorted([*map(tuple, ([*row[:2], sorted(row[2])] for row in results[name][0]))])
        for name in ("kept", "late")
    )  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("window", "first", "second"),
    [
        (
            tumbling(seconds=10, field="at", at_end="keep"),
            [("a", 10, [1.0, 2.0])],
            [("a", 20, [11.0, 12.0]), ("a", 30, [25.0])],
        ),
        (
            sliding(seconds=20, every=10, field="at", at_end="keep"),
            [("a", 10, [1.0, 2.0])],
            [("a", 20, [1.0, 2.0, 11.0, 12.0]), ("a", 30, [11.0, 12.0, 25.0])],
        ),
        (
            sessions(gap=4, field="at", at_end="keep"),
            [("a", 6.0, [1.0, 2.0])],
            [("a", 16.0, [11.0, 12.0]), ("a", 29.0, [25.0])],
        ),
    ],
    ids=["tumbling", "sliding", "sessions"],
)
def test_the_next_run_continues_with_the_windows_that_were_kept_open(
    window: AnyWindow, first: list[Any], second: list[Any], tmp_path: Path
) -> None:
    state = SqliteState(tmp_path / "windows.db")
    assert run(window, [clicks(1, 2, 11)], state) == (first, [])
    assert run(window, [clicks(12, 25, 36)], state) == (second, [])


def test_of_several_sources_the_slowest_decides_which_windows_are_complete(tmp_path: Path) -> None:
    window = tumbling(seconds=10, field="at", at_end="keep")
    state = SqliteState(tmp_path / "windows.db")
    sources = [clicks(1, 11, 95), clicks(2, 22, user="b"), []]
    ended, _ = run(window, sources, state)
    assert ended == [("a", 10, [1.0]), ("a", 20, [11.0]), ("b", 10, [2.0])]
    ended, late = run(window, [clicks(96, 200), clicks(23, 200, user="b")], state)
    assert ended == [("a", 100, [95.0, 96.0]), ("b", 30, [22.0, 23.0])]
    assert late == []


def test_windows_of_the_clock_can_be_kept_open(tmp_path: Path) -> None:
    state, clock = SqliteState(tmp_path / "windows.db"), ManualClock(5.0)
    window = tumbling(seconds=60, at_end="keep")
    assert run(window, [clicks(1)], state, clock) == ([], [])
    assert run(window, [clicks(2)], state, clock) == ([], [])
    ended, _ = run(tumbling(seconds=60), [clicks(3)], state, clock)
    assert [row[2] for row in ended] == [[1.0, 2.0, 3.0]]


@pytest.mark.parametrize("later_s", [-3600, 0, 3600])
def test_windows_of_the_clock_continue_on_a_machine_that_started_later(
    later_s: float, tmp_path: Path
) -> None:
    """`later_s`: by how much its date is ahead of that of the machine before."""
    state, up_s = SqliteState(tmp_path / "windows.db"), timedelta(days=100)
    before = ManualClock(up_s.total_seconds(), date=VIRTUAL_DATE - up_s)
    window = tumbling(seconds=10, at_end="keep")
    assert run(window, [clicks(1)], state, before) == ([], [])
    after = ManualClock(date=VIRTUAL_DATE + timedelta(seconds=later_s))
    ended, late = run(window, [Paced(*range(2, 40))], state, after)
    times = [time for _, _, times in ended for time in times]
    assert times == list(range(1, len(times) + 1))
    assert len(times) >= 30
    assert late == []


@pytest.mark.parametrize("window", [tumbling(seconds=10, field="at"), sessions(gap=4, field="at")])
def test_a_run_says_how_many_windows_of_a_state_its_end_has_ended(
    window: AnyWindow, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records = [*clicks(1, 11, 25), *clicks(26, user="b")]
    with caplog.at_level(logging.WARNING, "sunshower"):
        for in_memory in (None, MemoryState()):
            run(window, [records], in_memory)
        assert "has ended" not in caplog.text, "windows in memory have no next run"
        run(window, [records], SqliteState(tmp_path / "windows.db"))
    messages = [record.message for record in caplog.records if "has ended" in record.message]
    assert len(messages) == 1
    assert "state 'windows': the end of all sources has ended 2 windows" in messages[0]
    assert 'at_end="keep"' in messages[0]


def test_nothing_is_kept_open_without_a_state() -> None:
    stream = Topology("t").spout("in", Records(clicks(1), type=Click))
    window = tumbling(seconds=10, field="at", at_end="keep")
    with pytest.raises(TopologyError, match=r"at_end=\"keep\" leaves open .* give state="):
        stream.group_by("user").window(window, collect("at"))


def test_what_the_end_does_has_two_values_and_is_for_windows_of_time() -> None:
    wrong: Any = "hold"
    with pytest.raises(ConfigError, match="at_end is 'hold'; it must be 'end', or 'keep'"):
        tumbling(seconds=10, field="at", at_end=wrong)
    with pytest.raises(ConfigError, match="at_end is 'hold'"):
        sessions(gap=10, field="at", at_end=wrong)
    with pytest.raises(ConfigError, match="at_end= is for windows of time"):
        tumbling(count=3, at_end="keep")
