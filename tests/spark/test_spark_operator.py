"""A Spark step as an operator of a stage, without Spark: a batch is one job, or fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from sunshower.errors import SparkLost, StateMismatch, StoreUnreachable, TransformFailed
from sunshower.records import Schema
from sunshower.spark_integration.sessions.spark_port import BatchInfo
from sunshower.spark_integration.steps import BatchRows, SparkOperator
from sunshower.topologies.components import Context
from sunshower.topologies.operators.port import Attempt
from sunshower.trident.stages.plan import Waiting
from tests.spark.scripted import ScriptedPlace
from tests.trident.rigs.one_process import Runner, collected, stub_stream


@dataclass
class Sale:
    page: str
    price: float


def tenfold(sales: pa.Table, batch: BatchInfo) -> pa.Table:
    assert (batch.id, batch.txid, batch.attempt, batch.rows) == ("7", 7, 2, 3)
    return sales.take([2, 1, 0])


ATTEMPT = Attempt(7, 2, 1)
A, B, C = Sale("a", 1.0), Sale("b", 2.0), Sale("c", 3.0)


def run(place: ScriptedPlace, out: Any = Sale) -> list[Any]:
    operator = place.step(tenfold, out).operator([Schema.of(Sale)])
    operator.prepare(Context("t", "s", 1, 0, 1))
    batch, emitted = operator.start(ATTEMPT), []
    operator.process(batch, 0, [("a", 1.0), ("b", 2.0)], emitted.append)
    operator.process(batch, 0, [C], emitted.append)
    operator.process(batch, 0, [], emitted.append)
    while not operator.ready(batch, ATTEMPT):
        pass
    operator.finish(batch, ATTEMPT, emitted.append)
    operator.cleanup()
    assert place.closed == 1
    return emitted


def test_a_batch_is_one_job_and_its_rows_are_emitted() -> None:
    place = ScriptedPlace()
    assert run(place) == [[C, B, A]]
    assert len(place.tickets) == 1


def test_a_step_that_only_writes_emits_nothing_and_commits() -> None:
    place = ScriptedPlace()
    assert run(place, None) == []
    step = place.step(tenfold).write(tenfold)
    assert step.operator([Schema.of(Sale)]).commits
    assert not place.step(tenfold).operator([Schema.of(Sale)]).commits


class UnpublishableTable:
    """A table that cannot publish a batch, now or ever."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = [*errors]

    def publish(self, txid: int) -> None:
        raise self.errors.pop(0)


def test_an_error_of_publishing_is_raised_by_the_next_batch_unless_it_is_an_outage() -> None:
    operator, _ = begun(ScriptedPlace(ready=False))
    folder: Any = UnpublishableTable(StoreUnreachable("away"), StateMismatch("a hole"))
    operator._folders = [folder]
    operator.succeeded(1)
    operator.start(ATTEMPT)
    operator.succeeded(2)
    with pytest.raises(StateMismatch, match="a hole"):
        operator.start(ATTEMPT)


def begun(place: ScriptedPlace) -> tuple[SparkOperator, BatchRows]:
    operator = place.step(tenfold, Sale).operator([Schema.of(Sale)])
    operator.prepare(Context("t", "s", 1, 0, 1))
    batch = operator.start(ATTEMPT)
    operator.process(batch, 0, [A, B, C], list)
    assert not operator.ready(batch, ATTEMPT)
    return operator, batch


def test_a_batch_is_ready_when_its_job_is_done_and_its_task_does_not_wait() -> None:
    place = ScriptedPlace(ready=False)
    operator, batch = begun(place)
    assert isinstance(operator, Waiting)
    assert not operator.ready(batch, ATTEMPT)
    place.tickets[0].ready = True
    assert operator.ready(batch, ATTEMPT)
    assert len(place.tickets) == 1


def test_giving_up_a_batch_cancels_its_job() -> None:
    place = ScriptedPlace(ready=False)
    operator, batch = begun(place)
    operator.give_up(batch)
    assert place.tickets[0].cancelled
    operator.give_up(operator.start(ATTEMPT))
    place = ScriptedPlace(ready=False)
    operator, batch = begun(place)
    place.tickets[0].ready = True
    operator.give_up(batch)
    assert not place.tickets[0].cancelled


def test_reports_of_jobs_are_in_figures_and_results() -> None:
    place = ScriptedPlace(ready=False)
    operator, batch = begun(place)
    assert operator.figures()["spark batches"] == 0
    assert "spark job seconds" not in operator.figures()
    place.tickets[0].ready = True
    operator.ready(batch, ATTEMPT)
    figures = operator.figures()
    assert (figures["spark batches"], figures["spark rows in"]) == (1, 3)
    assert (figures["spark job seconds"], figures["spark mean job seconds"]) == (1.0, 1.0)
    assert [(report.batch, report.attempt) for report in operator.result()] == [("7", 2)]
    assert place.tickets[0].batch.topology == "t"


def test_a_batch_that_was_lost_with_spark_is_submitted_again_and_one_that_failed_is_not() -> None:
    place = ScriptedPlace(errors=[SparkLost("died")] * 3)
    assert run(place) == [[C, B, A]]
    assert [ticket.batch.run for ticket in place.tickets] == [0, 1, 2, 3]
    with pytest.raises(SparkLost):
        run(ScriptedPlace(errors=[SparkLost("died")] * 4))
    place = ScriptedPlace(errors=[TransformFailed("no")])
    with pytest.raises(TransformFailed):
        run(place)
    assert len(place.tickets) == 1


@dataclass(frozen=True)
class Page:
    page: str
    title: str


@dataclass(frozen=True)
class Priced:
    title: str
    price: float


def totals(sales: pa.Table, batch: BatchInfo) -> pa.Table:
    return sales.group_by("page").aggregate([("price", "sum")]).rename_columns(["page", "price"])


def joined(sales: pa.Table, pages: pa.Table, batch: BatchInfo) -> pa.Table:
    return sales.join(pages, "page", join_type="inner").select(["title", "price"])


def test_one_job_has_all_rows_of_a_batch_in_a_stream_program() -> None:
    topology, sales = stub_stream(Sale, parallelism=3)
    results = collected(sales.apply(ScriptedPlace().step(totals, Sale)))
    runner = Runner(topology)
    runner.batch([A, B, C, A, B])
    assert sorted((sale.page, sale.price) for sale in results) == [
        ("a", 2.0),
        ("b", 4.0),
        ("c", 3.0),
    ]
    assert [stage.parallelism for stage in runner.group.stages] == [3, 1]


def test_two_streams_of_batches_are_joined_in_one_transform() -> None:
    topology, sales = stub_stream(Sale, "sales", group="g")
    _, pages = stub_stream(Page, "pages", topology, group="g")
    step = ScriptedPlace().step(joined, Priced)
    results = collected(sales.apply(lambda stream: step(stream, pages)))
    Runner(topology).batch(sales=[A, B], pages=[Page("b", "B")])
    assert results == [Priced("B", 2.0)]
