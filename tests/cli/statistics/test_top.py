"""Tests of `sunshower top` and the tables of `status`: order, width, keys, a restored terminal."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from sunshower.cli.cluster_options import Window
from sunshower.cli.statistics import (
    activities,
    load_table,
    place_lines,
    stream_lines,
    tasks_table,
    watermark_lines,
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
    found = Latencies()
    for one in seconds:
        found.add_one(one)
    return found


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


# ---- the frame ----------------------------------------------------------------------------------


def test_the_busiest_component_comes_first() -> None:
    text = printed(topology_frame(overview(), 3_600.0, "1m"))
    assert re.findall(r"^ ?(\w+) × \d", text, re.MULTILINE) == ["busy", "numbers", "idle"]
    assert "90%" in text
    assert "50%" in text
    assert "numbers-to-show  ·  active  ·  up 1 h  ·  the last 1 min" in text


def test_no_figure_is_cut_at_80_columns() -> None:
    text = printed(topology_frame(overview(), 3_600.0, "1m"))
    assert "…" not in text
    (row,) = (line for line in text.splitlines() if line.strip().startswith("busy"))
    assert row.split()[3:] == ["47,637", "0", "90%", "50%", "12,345", "3.0", "s", "12", "ms"]
    assert max(map(len, text.splitlines())) <= 80


def test_failures_and_waits_are_below_the_table() -> None:
    text = printed(topology_frame(overview(), 3_600.0, "1m"))
    assert "2,858,233 failed in busy[1] on worker 0: exception (the last 1 min)" in text
    assert "3 failed: timeout" in text
    assert "numbers: its watermark is 35.5 behind the newest event time" in text
    assert "idle[0] waits for a dependency: 2 min 10 s, 14 tries" in text


def test_an_unknown_window_is_the_whole_time() -> None:
    found = activities(overview().snapshot, ["busy"], "10m", 1_000.0)
    assert found["busy"].for_s == 1_000.0
    assert found["busy"].counts.executed == MANY


def test_the_table_of_status_keeps_the_order_of_the_graph() -> None:
    here = overview()
    found = activities(here.snapshot, [*here.plan.graph.components], "1m", 60.0)
    text = printed(load_table(here.plan.graph, here.snapshot, found, "title"))
    assert re.findall(r"^ ?(\w+) × \d", text, re.MULTILINE) == ["numbers", "idle", "busy"]


def test_a_component_has_a_row_for_each_window_and_each_task() -> None:
    here = overview()
    busy = here.plan.graph.components["busy"]
    text = printed(windows_table(here.plan.graph, here.snapshot, busy, 7_200.0))
    assert [name for name in NAMES if f" {name}: " in text] == [*NAMES]
    assert "…" not in text
    text = printed(tasks_table(here.plan, here.snapshot, busy))
    assert "busy[0]" in text
    assert "idle" not in text
    assert "12,345" in text
    assert [*stream_lines(here.snapshot.component("busy"))] == [
        "stream default: 7 emitted, 0 transferred"
    ]


def test_the_most_frequent_places_are_listed_and_the_others_counted() -> None:
    here = overview()
    places = {FailurePlace("exception", "busy", task, 0): 1 + task for task in range(20)}
    found = {"numbers": Activity(1.0, Counts(failed=210, places=places))}
    lines = [*place_lines(here.plan.graph, found, "now")]
    assert lines[0] == "20 failed in busy[19] on worker 0: exception (now)"
    assert lines[-1] == "78 failed elsewhere (now)"
    assert sum(int(line.split()[0]) for line in lines) == 210


def test_components_without_watermarks_have_no_line() -> None:
    here = overview()
    assert len([*watermark_lines(here.plan.graph, here.snapshot)]) == 1


# ---- the terminal -------------------------------------------------------------------------------


def shown(read_key: Callable[[float], str]) -> tuple[str, int]:
    """What `show_live` writes to the terminal, and the number of frames that it draws."""
    out, frames = StringIO(), [0]

    def draw() -> Text:
        frames[0] += 1
        return Text(f"frame {frames[0]}")

    show_live(Console(file=out, force_terminal=True, width=80, height=24), draw, read_key)
    return out.getvalue(), frames[0]


def test_q_ends_the_live_view_and_the_terminal_is_restored() -> None:
    keys = iter(["", "x", "q"])
    text, frames = shown(lambda _: next(keys))
    assert frames == 3
    assert "frame 3" in text
    assert text.index(INTO) < text.index("frame 1") < text.index(OUT_OF)
    assert text.endswith("\x1b[?25h" + OUT_OF), "the cursor is shown again"


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
