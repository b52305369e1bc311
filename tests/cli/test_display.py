"""Tests of the display: rates, tables, lines, and the summary of a run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from sunshower.cli.display import Display, Rates, RunResult, duration, sentence, summary
from sunshower.clock import ManualClock
from sunshower.runtime.events.health import Health, Standing, TaskError
from sunshower.runtime.events.metrics import (
    Counts,
    Latencies,
    LatencyKind,
    Snapshot,
    TaskStats,
    WorkerStats,
)
from sunshower.runtime.inline import run_inline
from sunshower.topologies.graph import Graph
from sunshower.topologies.sources import Counter, Number
from sunshower.topologies.topology import Topology
from sunshower.trident import FixedBatchSpout, InMemory, batches


def show(number: Number) -> None: ...


def graph(ackers: int | None = None) -> Graph:
    topology = Topology("numbers-to-show", ackers=ackers)
    topology.spout("numbers", Counter(3), 2).shuffle().bolt("show", show)
    return topology.graph()


NONE = Counts()


def snapshot(spout: Counts, bolt: Counts = NONE, seconds: float | None = None) -> Snapshot:
    latencies = Latencies()
    if seconds is not None:
        latencies.add(np.array([seconds]))
    measured = {LatencyKind.COMPLETE: latencies}
    tasks = (TaskStats(1, "numbers", spout, measured), TaskStats(2, "show", bolt))
    return Snapshot("numbers-to-show", {0: WorkerStats(0, 1, tasks)})


def printed(what: object, width: int = 80) -> str:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


# ---- rates --------------------------------------------------------------------------------------


def test_a_rate_counts_the_last_seconds() -> None:
    rates = Rates()
    for second in range(10):
        rates.see(float(second), {"fast": 100 * second, "late": max(0, 50 * (second - 5))})
    assert rates.of("fast") == 100
    assert rates.of("late") == 50


def test_a_rate_is_zero_before_the_second_snapshot_and_never_negative() -> None:
    rates = Rates()
    assert rates.of("any") == 0
    rates.see(1.0, {"any": 7})
    assert rates.of("any") == 0
    rates.see(2.0, {"any": 3})
    assert rates.of("any") == 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(12.3, "12 s"), (123.4, "123 s"), (1.26, "1.3 s"), (0.134, "0.13 s"), (0.0421, "42 ms"),
     (0.0042, "4.2 ms"), (0.000085, "85 µs"), (0.0, "0 s")],
)  # fmt: skip
def test_durations_have_two_figures(seconds: float, text: str) -> None:
    assert duration(seconds) == text


# ---- what is shown ------------------------------------------------------------------------------

RUNS = {
    "all is acked": Counts(emitted=858_233, transferred=858_233, acked=858_233, pending=70),
    "failures": Counts(
        emitted=13, acked=10, failed=3, replayed=3, causes={"timeout": 1, "exception": 3_000}
    ),
    "a dead letter": Counts(
        emitted=13, acked=10, failed=3, replayed=3, dead=1, causes={"exception": 3}
    ),
    "one tuple, which is pending": Counts(emitted=1, pending=1),
}


@pytest.mark.parametrize("drained", [False, True])
@pytest.mark.parametrize("ackers", [None, 0], ids=["tracked", "untracked"])
@pytest.mark.parametrize("counts", RUNS.values(), ids=RUNS)
def test_the_lines_and_the_summary_of_a_run(
    counts: Counts, ackers: int | None, drained: bool, approved: SnapshotAssertion
) -> None:
    run, declared = snapshot(counts, Counts(executed=4, acked=4), 0.13), graph(ackers)
    display = Display(declared)
    display.see(snapshot(NONE), 0.0)
    display.see(run, 2.0)
    assert [*display.lines(run)] == approved
    assert printed(summary(declared, RunResult(run, 12.3, drained))) == approved


WIDE = Counts(2_858_233, 2_858_233, 0, 2_858_233, 10_752, 10_752, 16_384)


@pytest.mark.parametrize("name", ["show", "n" * 40])
def test_no_number_of_the_table_is_cut_on_a_terminal_of_80_columns(
    name: str, approved: SnapshotAssertion
) -> None:
    topology = Topology("wide")
    topology.spout("numbers", Counter(3), 2).shuffle().bolt(name, show)
    text = printed(Display(topology.graph()).table(snapshot(WIDE, WIDE, 1.3), "title"))
    assert "…" not in text
    assert text == approved


# ---- tasks in trouble ---------------------------------------------------------------------------

GONE = TaskError("show", 0, 1, "prepare of show[0] raised OSError: [gone]\nfor good", "OSError")


def test_a_quarantine_is_reported_once_with_the_first_line_of_its_error() -> None:
    display = Display(graph())
    degraded = Snapshot("numbers-to-show", degraded={2: GONE})
    assert list(display.news(snapshot(Counts()), 0.0)) == []
    (line,) = display.news(degraded, 1.0)
    assert line == (
        "show[0] on worker 1 is quarantined (on probation: tried again, every 30 s at most): "
        "prepare of show[0] raised OSError: [gone]"
    )
    assert list(display.news(degraded, 2.0)) == []


def test_the_summary_names_every_task_with_a_problem(approved: SnapshotAssertion) -> None:
    noted = TaskError("numbers", 0, 0, "ack of numbers[0] raised OSError: gone")
    health = Health(Standing.RUNNING, 3, (noted,))
    task = TaskStats(1, "numbers", Counts(emitted=3, acked=3), health=health)
    last = Snapshot("numbers-to-show", {0: WorkerStats(0, 1, (task,))}, degraded={2: GONE})
    assert printed(summary(graph(), RunResult(last, 1.0, drained=False)), width=150) == approved


@pytest.mark.parametrize("is_mixed", [False, True])
def test_a_run_of_batches_says_how_many_were_committed(is_mixed: bool) -> None:
    topology, calls = Topology("numbers-to-show"), list[Any]()

    def fails_once(row: Any) -> None:
        calls.append(row)
        if len(calls) == 3:
            raise ValueError("the first attempt")

    spout = FixedBatchSpout([("a",)] * 5, 2, fields=("word",))
    batches(topology, "words", spout, store=InMemory()).peek(fails_once)
    if is_mixed:
        topology.spout("numbers", Counter(3)).shuffle().bolt("show", show)
    graph = topology.graph()
    last = run_inline(graph, clock=ManualClock()).snapshot
    text = sentence(graph, RunResult(last, 12.0, drained=False))
    parts = "3 tuples taken in, all of them acked, " if is_mixed else ""
    parts += "3 batches committed, 1 attempt of batches failed on the way"
    assert text == f"Finished after 12 s: {parts}."


def test_batches_are_a_line_for_each_group(approved: SnapshotAssertion) -> None:
    topology = Topology("numbers-to-show")
    spout = FixedBatchSpout([("a",)], 1, fields=("word",))
    batches(topology, "words", spout, store=InMemory()).peek(print)
    display = Display(topology.graph())
    figures = {"txid": 17.0, "batches committed": 0.0, "batches active": 3.0}
    figures |= {"batches skipped": 0.0, "attempts failed": 2.0, "spout words/tasks": 1.0}
    figures |= {"process seconds": 0.352, "commit seconds": 0.05}
    active = {"batch 17/attempt": 1.0, "batch 17/phase": 2.0, "batch 17/age seconds": 0.42}
    rows = {"rows emitted": 4_000.0, "batch 17/rows": 512.0, "lag": 12_000.0}

    def shown(master: dict[str, float], spout: dict[str, float]) -> str:
        figures_of = {"$mastercoord-words": master, "words": spout}
        tasks = tuple(TaskStats(1, id, NONE, figures=values) for id, values in figures_of.items())
        return next(display.figures(Snapshot("numbers-to-show", {0: WorkerStats(0, 1, tasks)})))

    unknown = {"rows emitted": 4_000.0, "lag": math.nan}
    two_tasks = figures | active | {"spout words/tasks": 2.0}  # one has died
    next_one = figures | {"batches committed": 16.0, "attempts failed": 0.0}
    assert [
        shown(figures | active, rows),
        shown(figures | active, unknown),
        shown(two_tasks, rows),
        shown(next_one, {}),
        shown(figures | {"seconds unavailable": 300.4}, {}),
    ] == approved


def test_figures_of_user_code_are_a_line_without_their_details() -> None:
    task = TaskStats(
        1,
        "numbers",
        Counts(),
        figures={"lag": 0.0, "holes": 0.0, "odd": 12_345.0, "words[0]/lag": 7.0},
    )
    shown = Snapshot("numbers-to-show", {0: WorkerStats(0, 1, (task,))})
    assert list(Display(graph()).figures(shown)) == ["numbers: lag 0, odd 12,345"]
