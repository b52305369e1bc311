"""Tests of the values of requests: which of them are records, and which are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import attrs
import pytest
from pydantic import BaseModel, Field

from sunshower import Topology
from sunshower.errors import RequestRefused
from sunshower.records import Schema
from sunshower.simulation.cluster import SimCluster
from sunshower.topologies.requests import TypedText


class Ask(NamedTuple):
    number: int


class Two(NamedTuple):
    a: str
    b: int = 0


@pytest.fixture
def cluster() -> Iterator[SimCluster]:
    with SimCluster(seed=1, latency_s=0.001, check=True) as cluster:
        yield cluster


@pytest.mark.parametrize("kind", [Two, ["a", "b"]])
def test_a_tuple_or_list_of_all_fields_is_a_record(cluster: SimCluster, kind: Any) -> None:
    topology = Topology("two")
    topology.requests("two", kind).answer()
    run = cluster.submit(topology.graph())
    for value in (("a", 1), {"a": "a", "b": 1}):
        assert [tuple(row) for row in run.ask("two", value)] == [("a", 1)]
    for wrong in (("a",), "a", ("a", 1, 2)):
        with pytest.raises(RequestRefused, match=re.escape(f"this is {wrong!r}")):
            run.ask("two", wrong)


def test_the_record_of_a_stream_of_plain_tuples_of_one_field_is_itself(
    cluster: SimCluster,
) -> None:
    topology = Topology("one")
    topology.requests("one", ["a"]).answer()
    run = cluster.submit(topology.graph())
    assert run.ask("one", ("a",)) == run.ask("one", "a") == [("a",)]


@attrs.frozen
class Private:
    _number: int


class Aliased(BaseModel):
    number: int = Field(alias="Number")


@pytest.mark.parametrize(("kind", "record"), [(Private, Private(5)), (Aliased, Aliased(Number=5))])
def test_a_constructor_gets_the_fields_by_its_own_names(
    cluster: SimCluster, kind: Any, record: Any
) -> None:
    topology = Topology("named")
    topology.requests("asks", kind).answer()
    run = cluster.submit(topology.graph())
    (field,) = Schema.of(kind).fields
    for value in (5, {field: 5}, record):
        assert run.ask("asks", value) == [record]


class Line(NamedTuple):
    text: str


def test_typed_text_is_the_only_text_field_or_json(cluster: SimCluster) -> None:
    topology = Topology("typed")
    topology.requests("lines", Line).answer()
    topology.requests("asks", Ask).answer()
    run = cluster.submit(topology.graph())
    for typed in ("5", "null", "[a]", '"a"'):
        assert run.ask("lines", TypedText(typed)) == [Line(typed)]
    assert run.ask("lines", TypedText('{"text": "5"}')) == [Line("5")]
    assert run.ask("asks", TypedText("5")) == [Ask(5)]
    for name, typed in (("lines", "{a}"), ("asks", "[a]")):
        with pytest.raises(RequestRefused, match="no JSON"):
            run.ask(name, TypedText(typed))


def test_a_value_that_is_nested_too_deeply_is_refused_and_the_next_request_is_answered(
    cluster: SimCluster,
) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    topology = Topology("deep")
    topology.requests("asks", Ask).answer()
    run = cluster.submit(topology.graph())
    brackets = "[" * 100_000
    for value in (TypedText(brackets), TypedText(f'{{"number": {brackets}'), {"wrong": deep}):
        with pytest.raises(RequestRefused, match=r"'asks' is Ask\(number\), and this is"):
            run.ask("asks", value)
        assert run.ask("asks", 5) == [Ask(5)]
