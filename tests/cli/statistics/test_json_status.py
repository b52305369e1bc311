"""Tests of fields of `status --json` that topologies in the simulator do not have."""

from __future__ import annotations

import json

from syrupy.assertion import SnapshotAssertion

from sunshower.cli.statistics import scaling_lines, status_fields
from sunshower.runtime.control.overview import Overview
from sunshower.runtime.events.metrics import (
    Counts,
    EventTime,
    ScalingView,
    Snapshot,
    TaskStats,
    WorkerStats,
)
from sunshower.runtime.plan import make_plan
from sunshower.topologies.sources import Counter, Number
from sunshower.topologies.topology import Topology
from sunshower.trident import FixedBatchSpout, InMemory, batches


def show(number: Number) -> None: ...


def test_open_batches_have_their_phase(approved: SnapshotAssertion) -> None:
    topology = Topology("words")
    batches(
        topology, "words", FixedBatchSpout([("a",)], 1, fields=("word",)), store=InMemory()
    ).peek(print)
    plan = make_plan(topology.graph())
    figures = {"txid": 17.0, "batches committed": 16.0, "batches active": 2.0}
    figures |= {"batches skipped": 1.0, "attempts failed": 3.0}
    for txid, phase in ((18, 0.0), (17, 2.0)):
        figures |= {f"batch {txid}/attempt": 1.0, f"batch {txid}/phase": phase}
        figures |= {f"batch {txid}/age seconds": 0.5}
    task = TaskStats(1, "$mastercoord-words", Counts(), figures=figures)
    snapshot = Snapshot("words", {0: WorkerStats(0, 1, (task,))})
    assert status_fields(Overview(plan, snapshot, None, 0.0, {}), 1.0)["batches"] == approved


def test_batches_at_spark_are_listed_by_task(approved: SnapshotAssertion) -> None:
    topology = Topology("sales")
    topology.spout("sales", Counter(3)).shuffle().bolt("totals", show, 2)
    plan = make_plan(topology.graph())
    sums = {"batches": 4.0, "failed": 1.0, "lost": 0.0, "rows in": 40.0, "rows out": 9.0}
    figures = {f"spark {name}": value for name, value in sums.items()}
    for id, age_s in (("17", 0.5), ("16", 2.5)):
        facts = {"phase": 1.0, "attempt": 2.0, "rows": 10.0, "age seconds": age_s}
        figures |= {f"spark batch {id}/{name}": value for name, value in facts.items()}
    tasks = [task for task in plan.tasks if task.component == "totals"]
    stats = tuple(TaskStats(task.id, "totals", Counts(), figures=figures) for task in tasks)
    other = TaskStats(99, "totals", Counts(), figures={"spark batches": 1.0})  # of user code
    snapshot = Snapshot("sales", {0: WorkerStats(0, 1, (*stats, other))})
    assert status_fields(Overview(plan, snapshot, None, 0.0, {}), 1.0)["spark"] == approved


def test_values_that_json_cannot_represent_are_null(approved: SnapshotAssertion) -> None:
    topology = Topology("numbers")
    topology.spout("numbers", Counter(3)).shuffle().bolt("show", show)
    plan = make_plan(topology.graph())
    ended = EventTime(float("inf"), float("-inf"))
    task = TaskStats(1, "numbers", Counts(), figures={"lag": float("inf")}, event_time=ended)
    snapshot = Snapshot("numbers", {0: WorkerStats(0, 1, (task,))})
    fields = status_fields(Overview(plan, snapshot, None, 0.0, {}), 0.0)
    assert json.loads(json.dumps(fields, allow_nan=False)) == approved


def test_numbers_that_follow_the_load_have_a_line_and_fields() -> None:
    topology = Topology("numbers")
    topology.spout("numbers", Counter(3)).shuffle().bolt("show", show)
    plan = make_plan(topology.graph())
    tasks = ScalingView("show", 1, 8, 2, 4, "busy 0.95")
    snapshot = Snapshot("numbers", scaling=(tasks, ScalingView("", 1, 4, 2, 2, "busy 0.50")))
    assert list(scaling_lines(snapshot)) == [
        "show has 2 tasks, between 1 and 8, would be 4: busy 0.95",
        "there are 2 workers, between 1 and 4: busy 0.50",
    ]
    fields = status_fields(Overview(plan, snapshot, None, 0.0, {}), 0.0)
    assert fields["scaling"][0] == {
        "component": "show",
        "least": 1,
        "most": 8,
        "now": 2,
        "wanted": 4,
        "why": "busy 0.95",
    }
