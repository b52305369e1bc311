"""Tests of the display: rates, tables, lines, and the summary of a run."""

from __future__ import annotations

import math

import numpy as np
import pytest
from rich.console import Console

from sunshower.cli.display import Display, Rates, RunResult, duration, sentence, summary
from sunshower.runtime.events.health import Health, Standing, TaskError
from sunshower.runtime.events.metrics import (
    Counts,
    Latencies,
    LatencyKind,
    Snapshot,
    TaskStats,
    WorkerStats,
)
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


# ---- lines and tables ---------------------------------------------------------------------------


def test_a_line_has_the_counts_of_a_spout() -> None:
    display = Display(graph())
    display.see(snapshot(Counts()), 0.0)
    now = snapshot(Counts(emitted=120_400, acked=120_330, pending=70), seconds=0.13)
    display.see(now, 2.0)
    (line,) = display.lines(now)
    assert line == "numbers: 120,330 acked, 0 failed, 60,165/s, pending 70, p99 0.13 s"


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        (Counts(acked=5, failed=2, replayed=1), "2 failed, 1 replayed"),
        (
            Counts(acked=5, failed=3, replayed=3, dead=1, causes={"exception": 2, "timeout": 1}),
            "3 failed (exception 2, timeout 1), 3 replayed, 1 dead letter, ",
        ),
    ],
)
def test_a_line_has_failures_and_replays(counts: Counts, words: str) -> None:
    (line,) = Display(graph()).lines(snapshot(counts))
    assert words in line


def test_an_untracked_topology_has_no_acks() -> None:
    (line,) = Display(graph(ackers=0)).lines(snapshot(Counts(emitted=7)))
    assert line == "numbers: 7 emitted, 0/s, untracked"


def test_the_table_has_a_row_for_each_component() -> None:
    counts = Counts(emitted=2_858_233, acked=2_858_233, failed=10_752, replayed=10_752)
    text = printed(Display(graph()).table(snapshot(counts, Counts(executed=4, acked=4)), "title"))
    assert "numbers × 2" in text
    assert "show × 1" in text
    for heading in ("emitted", "acked", "failed", "replayed", "pending", "per s", "p50", "p99"):
        assert heading in text


WIDE = Counts(2_858_233, 2_858_233, 0, 2_858_233, 10_752, 10_752, 16_384)


def test_the_table_fits_a_terminal_of_80_columns() -> None:
    text = printed(Display(graph()).table(snapshot(WIDE, WIDE, 1.3), "title"))
    assert "…" not in text
    assert text.count("2,858,233") == 4


def test_a_long_name_is_folded_and_no_figure_is_cut() -> None:
    topology = Topology("long")
    topology.spout("numbers", Counter(3)).shuffle().bolt("n" * 40, show)
    text = printed(Display(topology.graph()).table(snapshot(WIDE), "title"))
    assert "…" not in text
    assert text.count("2,858,233") == 2
    assert text.count("n") - text.count("numbers") > 40


# ---- the end ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "drained", "expected"),
    [
        (
            Counts(emitted=13, acked=10, failed=3, replayed=3),
            False,
            (
                "Finished after 12 s: 10 tuples taken in, all of them acked, 3 failed on the way, "
                "3 replayed."
            ),
        ),
        (
            Counts(emitted=13, acked=10, failed=3, replayed=3, dead=1),
            False,
            (
                "Finished after 12 s: 10 tuples taken in, 9 acked, 1 among the dead letters, "
                "3 failed on the way, 3 replayed."
            ),
        ),
        (Counts(emitted=10, acked=9), True, "Drained after 12 s: 10 tuples taken in, 9 acked."),
    ],
)
def test_the_summary_is_a_sentence(counts: Counts, drained: bool, expected: str) -> None:
    assert sentence(graph(), RunResult(snapshot(counts), 12.3, drained)) == expected


def test_the_summary_has_a_line_for_each_cause_the_most_frequent_first() -> None:
    counts = Counts(emitted=9, acked=5, failed=4, causes={"timeout": 1, "exception": 3_000})
    text = printed(summary(graph(), RunResult(snapshot(counts), 1.0, drained=False)))
    assert text.endswith("\n  failed, exception: 3,000\n  failed, timeout: 1\n")
    assert "failed, " not in printed(summary(graph(), RunResult(snapshot(Counts()), 1.0, False)))


def test_the_summary_of_an_untracked_topology_claims_nothing() -> None:
    ended = RunResult(snapshot(Counts(emitted=1)), 1.0, drained=False)
    assert "1 tuple taken in, untracked" in sentence(graph(ackers=0), ended)


def test_totals_have_rates_over_the_whole_run() -> None:
    ended = RunResult(snapshot(Counts(emitted=500, acked=500)), 2.0, drained=False)
    assert " 250 " in printed(summary(graph(), ended))


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


def test_the_summary_names_every_task_with_a_problem() -> None:
    noted = TaskError("numbers", 0, 0, "ack of numbers[0] raised OSError: gone")
    health = Health(Standing.RUNNING, 3, (noted,))
    task = TaskStats(1, "numbers", Counts(emitted=3, acked=3), health=health)
    last = Snapshot("numbers-to-show", {0: WorkerStats(0, 1, (task,))}, degraded={2: GONE})
    text = printed(summary(graph(), RunResult(last, 1.0, drained=False)), width=150)
    assert "show[0] on worker 1 is quarantined (on probation: tried again" in text
    assert "prepare of show[0] raised OSError: [gone]" in text
    assert "numbers[0]: 3 errors, the last: ack of numbers[0] raised OSError: gone" in text
    assert "Finished after 1.0 s" in text


def test_batches_are_a_line_for_each_group() -> None:
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
        tasks = tuple(TaskStats(1, id, NONE, figures=one) for id, one in figures_of.items())
        return next(display.figures(Snapshot("numbers-to-show", {0: WorkerStats(0, 1, tasks)})))

    assert shown(figures | active, rows) == (
        "batches of words: 17 committing (attempt 1, 512 rows, 0.4 s), 2 more begun; 0 committed, "
        "2 attempts failed; 4,000 rows emitted, 12,000 behind"
    )
    unknown = {"rows emitted": 4_000.0, "lag": math.nan}
    assert shown(figures | active, unknown).endswith("; 4,000 rows emitted, unknown behind")
    two_tasks = figures | active | {"spout words/tasks": 2.0}
    assert shown(two_tasks, rows).endswith("4,000 rows emitted, unknown behind"), "one has died"
    assert shown(figures | {"batches committed": 16.0, "attempts failed": 0.0}, {}) == (
        "batches of words: 17 is the next; 16 committed; the last took 0.35 + 0.05 s; "
        "0 rows emitted"
    )
    assert shown(figures | {"seconds unavailable": 300.4}, {}) == (
        "batches of words: 17 is the next; 0 committed, 2 attempts failed; waiting for 300 s for "
        "a dependency that is away; 0 rows emitted"
    )


def test_figures_of_user_code_are_a_line_without_their_details() -> None:
    task = TaskStats(
        1,
        "numbers",
        Counts(),
        figures={"lag": 0.0, "holes": 0.0, "odd": 12_345.0, "words[0]/lag": 7.0},
    )
    shown = Snapshot("numbers-to-show", {0: WorkerStats(0, 1, (task,))})
    assert list(Display(graph()).figures(shown)) == ["numbers: lag 0, odd 12,345"]
