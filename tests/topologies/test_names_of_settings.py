"""A setting of a name that an operator does not have is refused, on both kinds of stream."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from sunshower import PatternStep, Records, Topology, count, tumbling
from sunshower.errors import TopologyError
from sunshower.state import MemoryState
from sunshower.topologies import streams
from sunshower.topologies.groupings import CustomGrouping
from sunshower.topologies.operators.keyed.patterns import Match
from sunshower.trident import FixedBatchSpout, InMemory, batches
from sunshower.trident.declaration import streams as of_batches


class Order(NamedTuple):
    key: str
    n: int


class First(CustomGrouping):
    def prepare(self, targets: Sequence[int]) -> None: ...

    def choose(self, record: Any) -> list[int]:
        return [0]


def keep(record: Any, state: Any) -> None: ...


def keep_all(record: Order) -> Iterator[Order]:
    yield record


def select(match: Match[Any]) -> tuple[int]:
    return (1,)


def is_first(record: Any) -> bool:
    return True


STEP: PatternStep[Any] = PatternStep("first", is_first)
MATCH = {"within": 5.0, "select": select, "fields": ["first"]}


def records(id: str = "records") -> Any:
    return Topology("t").spout(id, Records([Order("a", 1)], type=Order))


def rows() -> Any:
    source = FixedBatchSpout([("a", 1)], 1, fields=("key", "n"))
    return batches(Topology("t"), "rows", source, store=InMemory())


def calls(stream: Any) -> dict[str, Callable[..., Any]]:
    """Class and method → a call of it that lacks nothing but its settings."""
    keyed = stream.group_by("key")
    ordered, both = keyed.in_order("n"), keyed.connect(stream.filter(is_first).group_by("key"))
    aggregations = next(kind.__name__ for kind in type(keyed).__mro__ if "aggregate" in vars(kind))
    return {
        f"{aggregations}.aggregate": lambda **wrong: keyed.aggregate(count(), **wrong),
        f"{aggregations}.aggregate without groups": lambda **wrong: stream.aggregate(
            count(), **wrong
        ),
        f"{aggregations}.aggregate of totals": lambda **wrong: keyed.aggregate(
            count(), state=MemoryState()
        ).aggregate(count(name="all"), **wrong),
        f"{aggregations}.window": lambda **wrong: keyed.window(
            tumbling(count=5), count(), **{"state": MemoryState(), **wrong}
        ),
        f"{type(stream).__name__}.distinct": lambda **wrong: stream.distinct("key", **wrong),
        f"{type(stream).__name__}.join": lambda **wrong: stream.join(
            stream.filter(is_first), "key", **wrong
        ),
        f"{type(stream).__name__}.join in time": lambda **wrong: stream.join(
            stream.filter(is_first), "key", within=5.0, **wrong
        ),
        f"{type(stream).__name__}.join with a table": lambda **wrong: stream.join(
            keyed.table(state=MemoryState()), "key", **wrong
        ),
        f"{type(keyed).__name__}.process": lambda **wrong: keyed.process(keep, **wrong),
        f"{type(keyed).__name__}.in_order": lambda **wrong: keyed.in_order("n", **wrong),
        f"{type(keyed).__name__}.table": keyed.table,
        f"{type(ordered).__name__}.process": lambda **wrong: ordered.process(keep, **wrong),
        f"{type(ordered).__name__}.match": lambda **wrong: ordered.match(STEP, **MATCH, **wrong),
        f"{type(both).__name__}.process": lambda **wrong: both.process(keep, **wrong),
    }


def calls_of_records() -> dict[str, Callable[..., Any]]:
    stream = records()
    return calls(stream) | {
        "Grouped.bolt": lambda **wrong: stream.shuffle().bolt("bolt", keep_all, **wrong),
    }


def calls_of_batches() -> dict[str, Callable[..., Any]]:
    stream = rows()
    total = stream.group_by("key").aggregate(count(), state=MemoryState(), name="total")
    return calls(stream) | {
        "Aggregations.state_query": lambda **wrong: stream.group_by("key").state_query(
            total, **wrong
        ),
        "BatchStream.shuffle": stream.shuffle,
        "BatchStream.partition_by": lambda **wrong: stream.partition_by("key", **wrong),
        "BatchStream.broadcast": stream.broadcast,
        "BatchStream.batch_global": stream.batch_global,
        "BatchStream.partition": lambda **wrong: stream.partition(First(), **wrong),
        "BatchStream.records": lambda **wrong: stream.records("out", **wrong),
        "BatchStream.leave": lambda **wrong: stream.leave("out", **wrong),
    }


KINDS = {"records": (calls_of_records, streams), "batches": (calls_of_batches, of_batches)}


def with_settings(module: Any) -> Iterator[str]:
    """The operators that take settings by any name."""
    for kind in vars(module).values():
        if not inspect.isclass(kind) or kind.__module__ != module.__name__:
            continue
        for name, method in vars(kind).items():
            if inspect.isfunction(method) and not name.startswith("_"):
                parameters = inspect.signature(method).parameters.values()
                if any(each.kind is each.VAR_KEYWORD for each in parameters):
                    yield f"{kind.__name__}.{name}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["staet", "id_"])
def test_a_setting_of_an_unknown_name_is_refused(kind: str, name: str) -> None:
    begin, module = KINDS[kind]
    names = {*with_settings(module)} - {"Stream.bolt"}  # that refuses every call
    assert names <= begin().keys(), "an operator without a call in this test"
    accepted = []
    for operator in begin():
        call = begin()[operator]  # of a topology of its own
        try:
            call(**{name: 3})
        except (TopologyError, TypeError) as error:
            if name not in str(error):
                accepted.append(f"{operator}: {error!r}")
        else:
            accepted.append(operator)
    assert not accepted, "\n".join(accepted)
