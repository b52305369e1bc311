"""Tests of fields of `status --json` that topologies in the simulator do not have."""

from __future__ import annotations

import json

from sunshower.cli.statistics import status_fields
from sunshower.runtime.control.overview import Overview
from sunshower.runtime.events.metrics import Counts, EventTime, Snapshot, TaskStats, WorkerStats
from sunshower.runtime.plan import make_plan
from sunshower.topologies.sources import Counter, Number
from sunshower.topologies.topology import Topology
from sunshower.trident import FixedBatchSpout, InMemory, batches


def show(number: Number) -> None: ...


def test_open_batches_have_their_phase() -> None:
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
    (group,) = status_fields(Overview(plan, snapshot, None, 0.0, {}), 1.0)["batches"]
    assert group == {
        "group": "words",
        "txid": 17,
        "committed": 16,
        "skipped": 1,
        "attempts_failed": 3,
        "open": [
            {"txid": 17, "phase": "committing", "attempt": 1, "age_s": 0.5},
            {"txid": 18, "phase": "processing", "attempt": 1, "age_s": 0.5},
        ],
    }


def test_batches_at_spark_are_listed_by_task() -> None:
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
    first, second = status_fields(Overview(plan, snapshot, None, 0.0, {}), 1.0)["spark"]
    assert (first["task"], second["task"]) == (0, 1)
    open_ = {"phase": "at Spark", "attempt": 2, "rows": 10}
    assert first["open"] == [
        {"batch": "16", **open_, "age_s": 2.5},
        {"batch": "17", **open_, "age_s": 0.5},
    ]
    assert (first["batches"], first["failed"], first["rows_in"]) == (4, 1, 40)
    assert first["job_s"] is None, "no batch has ended in this process"


def test_values_that_json_cannot_represent_are_null() -> None:
    topology = Topology("numbers")
    topology.spout("numbers", Counter(3)).shuffle().bolt("show", show)
    plan = make_plan(topology.graph())
    ended = EventTime(float("inf"), float("-inf"))
    task = TaskStats(1, "numbers", Counts(), figures={"lag": float("inf")}, event_time=ended)
    snapshot = Snapshot("numbers", {0: WorkerStats(0, 1, (task,))})
    fields = status_fields(Overview(plan, snapshot, None, 0.0, {}), 0.0)
    component = json.loads(json.dumps(fields, allow_nan=False))["components"]["numbers"]
    assert component["watermark"] is component["watermark_lag"] is None
    assert component["figures"] == {"lag": None}
    assert component["tasks"][0]["watermark"] is None
    assert set(component["windows"]) == {"all"}, "the others are not known"
