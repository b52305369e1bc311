"""Late records are counted where status shows them, with how late the worst was."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from sunshower import Records, Topology, collect, count, sessions, sliding, sum_, tumbling
from sunshower.cli.health import _DO_NOT_MOVE, late_lines
from sunshower.cli.statistics import status_fields
from sunshower.runtime.control.measures import MEASURES, Observed
from sunshower.runtime.control.overview import Overview
from sunshower.runtime.events.metrics import (
    Counts,
    EventTime,
    Snapshot,
    TaskStats,
    Totals,
    WorkerStats,
)
from sunshower.runtime.inline import Finished
from sunshower.runtime.plan import make_plan
from sunshower.state import MemoryState, SqliteState
from sunshower.topologies.operators.aggregators import Aggregator
from tests.topologies.operators.kinds import Kept
from tests.topologies.operators.windows.test_windows import Click, Paced, run
from tests.trident.rigs.one_process import Runner, stub_stream

TIMES = (0.0, 100.0, 200.0, 5.0, 7.0, 95.0, 210.0)  # 5.0, 7.0 and 95.0 are late


class Last(Aggregator[Click, list[float]]):
    fields = ("last",)

    def init(self, attempt: Any) -> list[float]:
        return []

    def aggregate(self, state: list[float], record: Click) -> None:
        state.append(record.at)

    def complete(self, state: list[float]) -> Any:
        yield (state[-1],)


class Twice(Paced):
    """Emits each click of a second twice, together."""

    def records(self) -> Any:
        for click in super().records():
            yield click
            if click is not None:
                yield click


AGGREGATORS = {
    "count": [count()],
    "sum": [sum_("at")],
    "sum and count": [sum_("at"), count()],
    "collect": [collect("at")],
    "no combiner": [Last()],
}
WINDOWS: dict[str, tuple[Any, float]] = {
    # how long the worst came after the end of its window, when 200 was reached
    "tumbling": (tumbling(seconds=10, field="at"), 190.0),
    "late": (tumbling(seconds=10, field="at", late=20), 170.0),
    "sliding": (sliding(seconds=20, every=10, field="at"), 180.0),
    "sessions": (sessions(gap=10, field="at"), 185.0),
}


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("aggregators", AGGREGATORS)
def test_each_late_record_of_a_window_is_counted(window: str, aggregators: str) -> None:
    topology = Topology("clicks")
    clicks = topology.spout("clicks", Twice(*TIMES)).group_by("user")
    kind, by = WINDOWS[window]
    clicks.window(kind, *AGGREGATORS[aggregators]).shuffle().bolt("kept", Kept)
    counts = run(topology).snapshot.component("windows")
    assert (counts.late, counts.late_by) == (6, by)


@pytest.mark.parametrize("how", ["inner", "left", "outer"])
def test_each_late_record_of_a_join_is_counted(how: Any) -> None:
    topology = Topology("clicks")
    left = topology.spout("left", Paced(*TIMES))
    right = topology.spout("right", Paced(*TIMES[:3], 200.0, 200.0, 200.0, 200.0))
    names = ("user", "at", "other")
    rows = left.join(right, on="user", within=1, field="at", how=how, fields=names)
    rows.shuffle().bolt("kept", Kept)
    counts = run(topology).snapshot.component("join")
    assert (counts.late, counts.late_by) == (3, 195.0)


def test_late_rows_of_batches_are_counted_once() -> None:
    topology, stream = stub_stream(Click)
    stream.window(tumbling(seconds=10, field="at"), count(), state=MemoryState())
    runner = Runner(topology)
    clicks = [Click("a", at) for at in TIMES]
    for batch in (clicks[:3], clicks[3:6], clicks[6:]):
        runner.batch(batch)
    (records,) = [
        node.operator.late_records  # type: ignore[attr-defined]
        for tasks in runner.tasks.values()
        for node in tasks[0].stage.nodes
        if hasattr(node.operator, "late_records")
    ]
    assert (records.count, records.by, records.in_time) == (3, 190.0, True)


# ---- a second run --------------------------------------------------------------------------------


def second_run(path: Path, times: tuple[float, ...], kind: str) -> Finished:
    topology = Topology("clicks")
    clicks = topology.spout("clicks", Paced(*times))
    state = SqliteState(str(path / "state.db"))
    rows: Any
    if kind == "join":
        other = topology.spout("other", Paced(*times))
        rows = clicks.join(
            other, on="user", within=1, field="at", state=state, fields=("user", "at", "other")
        )
    else:
        rows = clicks.group_by("user").window(WINDOWS[kind][0], count(), state=state, name="join")
    rows.shuffle().bolt("kept", Kept)
    return run(topology)


@pytest.mark.parametrize("kind", ["tumbling", "sessions", "join"])
def test_a_second_run_says_that_everything_was_late(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    times = (0.0, 10.0, 20.0)
    first = second_run(tmp_path, times, kind).snapshot
    assert not [*first.event_time_notes("join")]
    with caplog.at_level(logging.WARNING, "sunshower"):
        second = second_run(tmp_path, times, kind).snapshot
    (note,) = second.event_time_notes("join")
    assert note.startswith("everything was late: the state says that windows up to ")
    assert note in caplog.text
    more = second_run(tmp_path, (*times, 100.0), kind).snapshot
    assert not [*more.event_time_notes("join")], "a record came in time"


# ---- what shows it -------------------------------------------------------------------------------


def test_status_page_and_metrics_show_late_records_and_those_ahead() -> None:
    topology = Topology("clicks")
    clicks = topology.spout("clicks", Records([], type=Click)).group_by("user")
    clicks.window(WINDOWS["tumbling"][0], count()).shuffle().bolt("kept", Kept)
    graph = topology.graph()
    plan = make_plan(graph)
    task_ids = {name: plan.tasks_of(name)[0].id for name in ("clicks", "windows")}
    time = EventTime(0.0, 10.0, ahead="all times of partition 3 …")
    tasks = (
        TaskStats(task_ids["clicks"], "clicks", Counts(ahead=4), event_time=time),
        TaskStats(task_ids["windows"], "windows", Counts(late=12, late_by=7.5, executed=12)),
    )
    snapshot = Snapshot("clicks", {worker: WorkerStats(worker, 1) for worker in plan.workers})
    workers = {**snapshot.workers, 0: WorkerStats(0, 1, tasks)}
    snapshot = Snapshot("clicks", workers)
    assert [*late_lines(graph, snapshot)] == [
        f"clicks: 4 records ahead of the clock, which {_DO_NOT_MOVE}",
        f"clicks: task {task_ids['clicks']}: all times of partition 3 …",
        "windows: 12 late records; the worst came 7.5 after its window had ended",
    ]
    overview = Overview(plan, snapshot, None, 0.0, {})
    components = json.loads(json.dumps(status_fields(overview, 1.0)))["components"]
    assert (components["windows"]["late"], components["windows"]["late_by"]) == (12, 7.5)
    assert components["clicks"]["ahead"] == 4
    assert components["clicks"]["event_time_notes"]
    observed = Observed("clicks", overview)
    values = {measure.name: dict(measure.read(observed)) for measure in MEASURES}
    assert values["tuples_late_total"]["windows",] == 12
    assert values["late_by"]["windows",] == 7.5
    assert values["tuples_ahead_total"]["clicks",] == 4


def test_the_worst_of_several_tasks_and_processes_is_kept() -> None:
    before, now = Counts(late=1, late_by=50.0), Counts(late=3, late_by=7.5)
    both = before + now
    assert (both.late, both.late_by) == (4, 50.0)
    assert both.since(before).late_by == 50.0
    assert both.since(both).late_by == 0.0
    assert Counts.from_fields(both.to_fields()) == both
    assert Counts.from_fields({"emitted": 3}).late == 0
    task = TaskStats(1, "w", now, had_ended=60.0)
    retired = {"w": Totals(Counts(executed=1))}
    snapshot = Snapshot("t", {0: WorkerStats(0, 1, (task,))})
    assert [*snapshot.event_time_notes("w")]
    assert not [*Snapshot("t", snapshot.workers, retired=retired).event_time_notes("w")]
