"""The resources that each task of a stage of batches requests from its node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from sunshower import Resources, Topology
from sunshower.errors import TopologyError
from sunshower.records import Schema
from sunshower.runtime.plan import make_plan
from sunshower.state import StaticState
from sunshower.topologies.operators.port import Operator
from sunshower.trident import count, tumbling
from tests.trident.rigs.one_process import StateStub, stub_stream

ONE = Resources(num_cpus=1)


class Word(NamedTuple):
    word: str
    length: int


class ByHand:
    def prepare(self, targets: int) -> None: ...
    def choose(self, record: Any) -> list[int]:
        return [0]


def is_any(row: Any) -> bool:
    return True


def visits(word: Word, state: Any) -> None: ...


def to_first_of_two(stream: Any) -> Any:
    return stream.operate(Operator(), stream, fields=())


def requested(topology: Any) -> dict[str, Resources]:
    """The request of a task, for each component that has one."""
    components = topology.graph().components.values()
    return {component.id: component.resources for component in components if component.resources}


BEGINS = [
    lambda s: s.shuffle(resources=ONE).filter(is_any),
    lambda s: s.partition_by("word", resources=ONE).filter(is_any),
    lambda s: s.broadcast(resources=ONE).filter(is_any),
    lambda s: s.global_(resources=ONE).filter(is_any),
    lambda s: s.batch_global(resources=ONE).filter(is_any),
    lambda s: s.partition(ByHand(), resources=ONE).filter(is_any),
    lambda s: s.aggregate(count(), resources=ONE),
    lambda s: s.group_by("word").aggregate(count(), resources=ONE),
    lambda s: s.aggregate(count(), state=StateStub(), resources=ONE),
    lambda s: s.group_by("word").aggregate(count(), state=StateStub(), resources=ONE),
    lambda s: s.group_by("word").process(visits, state=StateStub(), resources=ONE),
    lambda s: s.window(tumbling(count=2), count(), state=StateStub(), resources=ONE),
    lambda s: s.group_by("word").state_query(StaticState({}), resources=ONE),
    lambda s: s.join(s, "word", resources=ONE, fields=("word", "one", "other")),
]


@pytest.mark.parametrize("begin", BEGINS)
def test_each_operation_that_begins_a_stage_declares_the_resources_of_its_tasks(
    begin: Callable[[Any], Any],
) -> None:
    topology, stream = stub_stream(Word, "words")
    begin(stream).named("made")
    assert requested(topology) == {"made": ONE}


def test_a_batch_spout_and_records_declare_the_resources_of_their_tasks_too() -> None:
    topology, stream = stub_stream(Word, "words", resources=ONE)
    stream.records("rows", resources=Resources(num_gpus=1))
    assert requested(topology) == {"words": ONE, "rows": Resources(num_gpus=1)}


def test_a_worker_requests_the_sum_over_the_tasks_of_stages() -> None:
    topology, stream = stub_stream(Word, "words", Topology("t", workers=1))
    stream.shuffle(parallelism=2, resources=ONE).filter(is_any)
    assert make_plan(topology.graph()).request_of(0) == Resources(num_cpus=2)


def test_operations_that_begin_no_stage_of_their_own_request_nothing() -> None:
    topology, stream = stub_stream(Word, "words")
    other = stream.shuffle(resources=ONE).filter(is_any).named("own")
    to_first_of_two(stream)
    stream.merge(other).add(Operator(), Schema(("a",)))  # a stage that collects the rows of both
    assert list(requested(topology)) == ["own"]


WRONG = [
    (lambda s: s.shuffle(resources=1), "topology 't', batches 'words': resources is 1; give"),
    (lambda s: s.shuffle(parallel=2), "no setting 'parallel'; did you mean 'parallelism'"),
    (
        lambda s: s.state_query(s.aggregate(count(), state=StateStub()), resources=ONE),
        "begins no stage, so it has no resources=",
    ),
    (
        lambda s: s.state_query(StaticState({}), parallelism=2),
        "begins no stage, so it has no parallelism=",
    ),
]


@pytest.mark.parametrize(("declare", "words"), WRONG)
def test_invalid_settings_of_tasks_are_refused_where_they_are_declared(
    declare: Callable[[Any], Any], words: str
) -> None:
    _, stream = stub_stream(Word, "words")
    with pytest.raises(TopologyError, match=words):
        declare(stream)
