"""Tests of `sunshower top` and the tables of `status`: order, width, keys, a restored terminal."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text
from syrupy.assertion import SnapshotAssertion

from sunshower.cli.cluster_options import Window
from sunshower.cli.statistics import (
    activities,
    load_table,
    place_lines,
    stream_lines,
    tasks_table,
    windows_table,
)
from sunshower.cli.status import pressed_keys, show_live, topology_frame
from sunshower.runtime.control.overview import Overview
from sunshower.runtime.events.health import Health, TaskError, Wait, WaitKind
from sunshower.runtime.events.metrics import (
    NAMES,
    Activity,
    Counts,
    EventTime,
    FailurePlace,
    Latencies,
    LatencyKind,
    Snapshot,
    TaskStats,
    WorkerStats,
)
from sunshower.runtime.plan import make_plan
from sunshower.topologies.sources import Counter, Number
from sunshower.topologies.topology import Topology
from tests.conftest import Sunshower

INTO, OUT_OF = "\x1b[?1049h", "\x1b[?1049l"  # the alternate screen of a terminal
MANY = 2_858_233


def show(number: Number) -> None: ...


def latencies(*seconds: float) -> Latencies:
    histogram = Latencies()
    for duration in seconds:
        histogram.add_one(duration)
    return histogram


def overview() -> Overview:
    topology = Topology("numbers-to-show")
    numbers = topology.spout("numbers", Counter(3), 2)
    numbers.shuffle().bolt("idle", show)
    numbers.shuffle().bolt("busy", show, 2)
    plan = make_plan(topology.graph())
    ids = {id: plan.tasks_of(id)[0].id for id in plan.graph.components}
    error = TaskError("idle", 0, 0, "process of idle[0] raised OSError: gone", "OSError")
    places = {FailurePlace("exception", "busy", 1, 0): MANY, FailurePlace("timeout", "", -1, -1): 3}
    spout = Counts(MANY, MANY, acked=MANY, failed=MANY + 3, places=places, busy_s=3.0)
    busy = Counts(executed=MANY, busy_s=108.0, blocked_s=60.0, emitted_to={"default": 7})
    kinds = LatencyKind
    window = {
        "numbers": Activity(60.0, spout, {kinds.COMPLETE: latencies(12.3)}),
        "idle": Activity(60.0, Counts()),
        "busy": Activity(
            60.0, busy, {kinds.EXECUTE: latencies(0.0123), kinds.QUEUE: latencies(3.0)}
        ),
    }
    wait = Health(wait=Wait(WaitKind.UNAVAILABLE, 130.0, 14, error, True))
    tasks = (
        TaskStats(ids["numbers"], "numbers", spout, event_time=EventTime(60.0, 95.5)),
        TaskStats(ids["idle"], "idle", Counts(), health=wait),
        TaskStats(ids["busy"], "busy", busy, {kinds.EXECUTE: latencies(0.0123)}, queued=12_345),
    )
    snapshot = Snapshot("numbers-to-show", {0: WorkerStats(0, 1, tasks)}, windows={"1m": window})
    return Overview(plan, snapshot, None, 0.0, {})


def printed(*parts: object) -> str:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(*parts)
    return capture.get()


# ---- the tables ---------------------------------------------------------------------------------


def test_the_frame_of_a_topology_has_the_busiest_component_first(
    approved: SnapshotAssertion,
) -> None:
    text = printed(topology_frame(overview(), 3_600.0, "1m"))
    assert max(map(len, text.splitlines()[:8])) <= 80, "no number is cut"
    assert text == approved


def test_the_tables_of_status(approved: SnapshotAssertion) -> None:
    here = overview()
    graph, busy = here.plan.graph, here.plan.graph.components["busy"]
    unknown = activities(here.snapshot, [*graph.components], "10m", 1_000.0)  # the whole time
    assert printed(load_table(graph, here.snapshot, unknown, "title")) == approved
    assert printed(windows_table(graph, here.snapshot, busy, 7_200.0)) == approved
    assert printed(tasks_table(here.plan, here.snapshot, busy)) == approved
    assert [*stream_lines(here.snapshot.component("busy"))] == approved


def test_the_most_frequent_places_are_listed_and_the_others_counted(
    approved: SnapshotAssertion,
) -> None:
    here = overview()
    places = {FailurePlace("exception", "busy", task, 0): 1 + task for task in range(20)}
    failed = {"numbers": Activity(1.0, Counts(failed=210, places=places))}
    lines = [*place_lines(here.plan.graph, failed, "now")]
    assert sum(int(line.split()[0]) for line in lines) == 210
    assert lines == approved


# ---- the terminal -------------------------------------------------------------------------------


def shown(read_key: Callable[[float], str]) -> tuple[str, int]:
    """What `show_live` writes to the terminal, and the number of frames that it draws."""
    out, frames = StringIO(), [0]

    def draw(order: str) -> Text:
        frames[0] += 1
        return Text(f"frame {frames[0]} by {order}\nsecond line {frames[0]}")

    show_live(Console(file=out, force_terminal=True, width=80, height=24), draw, read_key)
    return out.getvalue(), frames[0]


def test_q_ends_the_live_view_and_the_terminal_is_restored() -> None:
    keys = iter(["", "x", "q"])
    text, frames = shown(lambda _: next(keys))
    assert frames == 3
    assert "frame 3" in text
    assert text.index(INTO) < text.index("frame 1") < text.index(OUT_OF)
    assert text.endswith("\x1b[?25h" + OUT_OF), "the cursor is shown again"


def test_keys_sort_and_scroll() -> None:
    keys = iter(["s", "j", "j", "k", "k", "k", "q"])
    text, _ = shown(lambda _: next(keys))
    for seen in ("frame 1 by capacity", "frame 2 by per s", "second line 3", "frame 6 by per s"):
        assert seen in text
    assert "frame 3" not in text, "the first line is above the screen"


def test_ctrl_c_ends_the_live_view_and_the_terminal_is_restored() -> None:
    def read_key(_: float) -> str:
        signal.raise_signal(signal.SIGINT)
        return ""

    text, frames = shown(read_key)
    assert frames == 1
    assert OUT_OF in text


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The other end of the terminal that is standard input."""
    ours, theirs = os.openpty()
    with open(theirs, encoding="ascii") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield ours
    os.close(ours)


def test_keys_arrive_at_once_and_the_settings_of_the_terminal_are_restored(terminal: int) -> None:
    import termios

    before = termios.tcgetattr(sys.stdin)
    with pressed_keys() as read_key:
        assert termios.tcgetattr(sys.stdin) != before
        os.write(terminal, b"q")
        assert read_key(60.0) == "q"
        assert read_key(0.0) == ""
    assert termios.tcgetattr(sys.stdin) == before


def test_without_a_terminal_there_are_no_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").touch()
    with (tmp_path / "empty").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        with pressed_keys() as read_key:
            assert read_key(0.0) == ""


# ---- the option ---------------------------------------------------------------------------------


def test_the_option_names_every_window_and_refuses_others(
    sunshower: Sunshower, capsys: pytest.CaptureFixture[str]
) -> None:
    assert Window.__metadata__[0].metavar == "|".join(NAMES)
    assert sunshower("top", "--window", "5m") == 2
    assert "1m, 10m, 1h, all" in capsys.readouterr().err
