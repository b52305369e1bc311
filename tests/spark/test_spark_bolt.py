"""SparkBatchBolt without Spark: when batches are submitted, when inputs are acked, and failures."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import pyarrow as pa
import pytest

from sunshower import Records, Topology
from sunshower.clock import ManualClock
from sunshower.errors import (
    ConfigError,
    RecordMismatch,
    SparkLost,
    SparkMissing,
    SparkUnavailable,
    TopologyError,
    TransformFailed,
)
from sunshower.records import Schema
from sunshower.runtime.inline import run_inline
from sunshower.simulation.cluster import SimCluster
from sunshower.spark_integration.bolt import SparkBatchBolt
from sunshower.spark_integration.sessions.spark_port import BatchInfo
from sunshower.spark_integration.steps import spark
from sunshower.topologies.components import Context
from tests.spark.sales import Collect, Page, Sale
from tests.spark.scripted import ScriptedPlace


class Total(NamedTuple):
    page: str
    total: float


def totals(sales: pa.Table, batch: BatchInfo) -> pa.Table:
    return sales.group_by("page").aggregate([("price", "sum")]).rename_columns(["page", "total"])


def nothing(sales: pa.Table, batch: BatchInfo) -> None:
    return None


class Input:
    def __init__(self, record: Any) -> None:
        self.record = record
        self.component, self.task, self.stream = "source", 0, "default"


class RecordingCollector:
    """A collector that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def ack(self, tuple: Input) -> None:
        self.calls.append(("ack", tuple.record))

    def fail(self, tuple: Input, reason: str = "") -> None:
        self.calls.append((reason, tuple.record))

    def reset_timeout(self, tuple: Input) -> None:
        self.calls.append(("renewed", tuple.record))

    def emit(self, record: Any, anchors: list[Input]) -> None:
        self.calls.append(("emit", (record, [anchor.record for anchor in anchors])))


class Driven:
    """A bolt that a test calls as a worker would."""

    def __init__(
        self, place: ScriptedPlace, transform: Any = totals, out: Any = Total, **more: Any
    ) -> None:
        self.clock, self.collector, self.place = ManualClock(), RecordingCollector(), place
        self.bolt = SparkBatchBolt(place.step(transform, out), **more)
        for record_type in (Sale, Page) if transform is joined else (Sale,):
            self.bolt.check_input(Schema.of(record_type))
        self.bolt.prepare(Context("t", "spark", 1, 0, 1, clock=self.clock))

    def take(self, *records: Any) -> None:
        for record in records:
            self.bolt.execute(cast("Any", Input(record)), cast("Any", self.collector))
        self.bolt.flush()

    def tick(self, seconds: float = 0.0) -> list[tuple[str, Any]]:
        self.clock.advance(seconds)
        self.bolt.tick()
        calls, self.collector.calls = self.collector.calls, []
        return calls


def joined(sales: pa.Table, pages: pa.Table, batch: BatchInfo) -> pa.Table:
    return (
        sales.join(pages, "page", join_type="inner")
        .select(["title", "price"])
        .rename_columns(["page", "total"])
    )


A, B, C = Sale("a", 1.0), Sale("b", 2.0), Sale("a", 3.0)


def test_a_batch_is_submitted_when_it_is_full_or_has_waited() -> None:
    place = ScriptedPlace(ready=False)
    driven = Driven(place, rows_max=2, wait_s=1.0)
    driven.take(A, B, C)
    assert [ticket.batch.rows for ticket in place.tickets] == [2]
    driven.tick(0.9)
    assert len(place.tickets) == 1
    driven.tick(0.2)
    assert [ticket.tables[0].to_pylist() for ticket in place.tickets] == [
        [A._asdict(), B._asdict()],
        [C._asdict()],
    ]
    assert place.tickets[0].batch.id != place.tickets[1].batch.id


def test_inputs_are_acked_when_spark_has_finished_and_not_before() -> None:
    place = ScriptedPlace(ready=False)
    driven = Driven(place, rows_max=3)
    driven.take(A, B, C)
    assert driven.tick(0.5) == []
    place.tickets[0].ready = True
    calls = driven.tick()
    assert calls[-3:] == [("ack", A), ("ack", B), ("ack", C)]
    assert sorted(calls[:2]) == [
        ("emit", (Total("a", 4.0), [A, B, C])),
        ("emit", (Total("b", 2.0), [A, B, C])),
    ]
    figures = driven.bolt.figures()
    assert [figures[name] for name in ("waiting", "at spark", "batches", "rows")] == [0, 0, 1, 3]
    assert (figures["spark batches"], figures["spark rows in"]) == (1, 3)
    assert [report.rows_in for report in driven.bolt.result()] == [3]


def open_batches(driven: Driven) -> dict[str, float]:
    """The figures of the open batches, without their ids."""
    figures = driven.bolt.figures().items()
    return {n.rpartition("/")[2]: value for n, value in figures if n.startswith("spark batch ")}


def test_figures_show_the_open_batches_and_how_batches_ended() -> None:
    place = ScriptedPlace(
        ready=False, errors=[SparkLost("died"), TransformFailed("no such column")]
    )
    driven = Driven(place, rows_max=2)
    assert open_batches(driven) == {}
    driven.take(A, B)
    driven.tick(2.0)
    open_figures = open_batches(driven)
    assert open_figures == {"phase": 1.0, "attempt": 1.0, "rows": 2.0, "age seconds": 2.0}
    place.tickets[0].ready = True  # Spark has died: the batch is submitted again
    driven.tick()
    assert open_batches(driven)["attempt"] == 2
    place.tickets[1].ready = True
    driven.tick()
    assert open_batches(driven) == {}
    driven.take(A, B)
    place.tickets[2].ready = True
    driven.tick()
    figures = driven.bolt.figures()
    ended = [figures[f"spark {name}"] for name in ("batches", "failed", "lost")]
    assert (ended, open_batches(driven)) == ([1, 1, 1], {})


def test_a_step_without_results_acks_its_inputs_too() -> None:
    driven = Driven(ScriptedPlace(), nothing, None, rows_max=1)
    driven.take(A)
    assert driven.tick() == [("ack", A)]


def test_inputs_that_wait_long_do_not_time_out() -> None:
    driven = Driven(ScriptedPlace(ready=False), rows_max=1, batches_max=1)
    driven.take(A, B)
    assert driven.tick(2.0) == [("renewed", B), ("renewed", A)]
    assert driven.tick(1.0) == []


def test_at_most_batches_max_batches_are_at_spark() -> None:
    place = ScriptedPlace(ready=False)
    driven = Driven(place, rows_max=1, batches_max=2)
    driven.take(A, B, C, A)
    assert len(place.tickets) == 2
    assert driven.clock.now() > 0  # it waits a little for a free slot
    place.tickets[0].ready = True
    assert ("ack", A) in driven.tick()
    assert [ticket.batch.rows for ticket in place.tickets] == [1, 1, 1]


def test_a_transform_that_raises_fails_its_batch_with_the_reason() -> None:
    place = ScriptedPlace(errors=[TransformFailed("totals failed:\nKeyError: 'x'")])
    driven = Driven(place, rows_max=2)
    driven.take(A, B)
    reason = "TransformFailed: totals failed:\nKeyError: 'x'"
    assert driven.tick() == [(reason, A), (reason, B)]


def test_a_batch_that_was_lost_with_spark_is_submitted_again() -> None:
    place = ScriptedPlace(errors=[SparkLost("died")] * 2)
    driven = Driven(place, rows_max=1)
    driven.take(A)
    assert driven.tick() == driven.tick() == []
    assert driven.tick()[-1] == ("ack", A)
    assert len({ticket.batch.id for ticket in place.tickets}) == 1
    assert [ticket.cancelled for ticket in place.tickets] == [
        True,
        True,
        False,
    ]  # they might still run
    assert [ticket.batch.run for ticket in place.tickets] == [0, 1, 2]


def test_jobs_are_cancelled_when_the_topology_ends() -> None:
    place = ScriptedPlace(ready=False)
    driven = Driven(place, rows_max=1)
    driven.take(A, B)
    driven.bolt.cleanup()
    assert [ticket.cancelled for ticket in place.tickets] == [True, True]
    assert place.closed == 1


def test_a_batch_that_kills_spark_repeatedly_fails() -> None:
    driven = Driven(ScriptedPlace(errors=[SparkLost("died")] * 9), rows_max=1)
    driven.take(A)
    calls = [driven.tick() for _ in range(4)]
    assert calls == [[], [], [], [("SparkLost: died", A)]]


def test_while_spark_is_unavailable_a_batch_is_kept_and_the_outage_is_reported() -> None:
    place = ScriptedPlace(errors=[SparkUnavailable("no room")] * 10)
    driven = Driven(place, rows_max=1)
    driven.take(A)
    errors = [tick_error(driven, 0.5) for _ in range(18)]
    assert [at for at, error in enumerate(errors) if error] == [0, 12]  # 6 s apart
    assert len(place.tickets) == 7  # each fails half a second later, and then it waits one second
    renewed = [what for what in driven.collector.calls if what == ("renewed", A)]
    assert len(renewed) == len(driven.collector.calls) == 4, "it neither fails nor times out"
    place.errors.clear()
    assert (driven.tick() + driven.tick(1.0) + driven.tick())[-1] == ("ack", A)
    assert len({ticket.batch.id for ticket in place.tickets}) == 1


def tick_error(driven: Driven, seconds: float) -> str:
    driven.clock.advance(seconds)
    try:
        driven.bolt.tick()
    except SparkUnavailable as error:
        return str(error)
    return ""


def test_batches_fail_when_spark_is_missing_and_the_others_do_not_wait() -> None:
    place = ScriptedPlace(errors=[SparkMissing("no Java"), SparkMissing("no Java")])
    driven = Driven(place, rows_max=1, batches_max=3)
    driven.take(A, B, C)
    with pytest.raises(SparkMissing, match="no Java"):
        driven.tick()
    assert driven.collector.calls[:2] == [
        ("SparkMissing: no Java", A),
        ("SparkMissing: no Java", B),
    ]
    assert driven.collector.calls[-1] == ("ack", C)


def test_a_topology_survives_an_outage_of_spark_longer_than_its_attempts() -> None:
    place = ScriptedPlace(errors=[SparkUnavailable("no room")] * 20)
    topology = Topology("t", message_timeout_s=5)
    sales = topology.spout("sales", Records([Sale("a", float(n)) for n in range(9)], type=Sale))
    bolt = SparkBatchBolt(place.step(totals, Total), rows_max=3, wait_s=0.2)
    sales.shuffle().bolt("spark", bolt).shuffle().bolt("keep", Collect())
    run = SimCluster(seed=7).submit(topology.graph())
    assert run.wait(300.0)
    (seen,) = run.results("keep")
    assert sum(total.total for total in seen) == sum(range(9))
    assert run.snapshot().component("sales").replayed == 0
    assert not place.errors


def test_a_record_that_spark_cannot_represent_fails_alone() -> None:
    driven = Driven(ScriptedPlace(), rows_max=3)
    bad = Sale("b", cast("Any", None))
    driven.take(A, bad, C)
    calls = driven.tick()
    assert calls[0][1] is bad
    assert "Unserialisable: Sale.price is None" in calls[0][0]
    assert calls[1:] == [("emit", (Total("a", 4.0), [A, C])), ("ack", A), ("ack", C)]


def test_too_many_results_for_their_anchors_fail_the_batch() -> None:
    driven = Driven(ScriptedPlace(), rows_max=2, edges_max=3)
    driven.take(A, B)
    reason, _ = driven.tick()[0]
    assert "2 records came to 2 results, which is more than edges_max=3" in reason


def test_a_transform_has_a_frame_for_each_record_type() -> None:
    driven = Driven(ScriptedPlace(), joined, rows_max=3)
    driven.take(A, Page("a", "A"), B)
    assert driven.tick()[0] == ("emit", (Total("A", 1.0), [A, Page("a", "A"), B]))


def test_a_batch_that_failed_once_is_emitted_again_and_counted_once() -> None:
    place = ScriptedPlace(errors=[TransformFailed("no")])
    topology = Topology("t", spout_pending=100)
    records = [Sale("a", float(n)) for n in range(100)]
    sales = topology.spout("sales", Records(records, type=Sale))
    bolt = SparkBatchBolt(place.step(totals, Total), rows_max=50, wait_s=0.2)
    sales.shuffle().bolt("spark", bolt).shuffle().bolt("keep", Collect())
    finished = run_inline(topology.graph(), clock=ManualClock())
    assert sum(total.total for total in finished.results["keep"][0]) == sum(range(100))
    assert finished.snapshot.component("sales").replayed == 50


def test_wrong_declarations_are_refused_where_they_are_declared() -> None:
    class Odd(NamedTuple):
        price: object

    class Other(NamedTuple):
        price: float

    topology = Topology("t")
    odd = topology.spout("odd", Records([Odd(1)], type=Odd))
    sales = topology.spout("sales", Records([A], type=Sale))
    place = ScriptedPlace()
    with pytest.raises(
        RecordMismatch, match=r"SparkBatchBolt\(spark\(totals\)\): Odd\.price is object"
    ):
        odd.shuffle().bolt("spark", SparkBatchBolt(place.step(totals, Total)))
    with pytest.raises(RecordMismatch, match=r"spark\(totals\), out: Odd\.price is object"):
        spark(totals, out=Odd)
    with pytest.raises(TopologyError, match="does not take so many"):
        sales.shuffle().bolt("spark", SparkBatchBolt(place.step(lambda df: df, Total)))
    with pytest.raises(TopologyError, match="timeout_s is 0"):
        spark(totals, timeout_s=0)
    with pytest.raises(TopologyError, match="give a function"):
        spark(cast("Any", "select"))
    with pytest.raises(ConfigError, match="rows_max is 0"):
        SparkBatchBolt(place.step(totals), rows_max=0)
