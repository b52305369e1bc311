"""Fields of every type are declared and sent; a type that cannot be sent is refused."""

from __future__ import annotations

import io
import threading
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from json import loads
from numbers import Number
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar
from uuid import UUID

import numpy as np
import pandas as pd
import pytest

from sunshower import Bolt, Context, JsonLines, Records, Spout, run_inline
from sunshower import Topology as RightTopology
from sunshower.arrow.record_columns import records_of
from sunshower.clock import ManualClock
from sunshower.errors import RecordMismatch, Unserialisable
from sunshower.json_values import StoredValues, named
from sunshower.kafka.producing.producer import as_bytes
from sunshower.records import Schema
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState
from sunshower.trident import FixedBatchSpout, InMemory, batches, count
from tests.runtime.field_values import Access, Color, Field, Level, Line, Point, Unit, exactly
from tests.topologies.conftest import Topology, refused

# ---- which types are refused --------------------------------------------------------------------


class Socket:
    """A class that is no record."""


class Event(threading.Event):
    pass


@dataclass
class NamesOfFiles(dict[str, str]):
    folder: str


class Within(NamedTuple):
    lock: threading.Lock  # type: ignore[valid-type]  # a function, not a class


class Names(TypedDict):
    file: io.TextIOWrapper


LOCK = (
    f"_thread.{threading.Lock.__qualname__}"
    if isinstance(threading.Lock, type)
    else "_thread.allocate_lock"
)


def record(annotation: Any) -> Any:
    return NamedTuple("Order", [("id", int), ("what", annotation)])  # type: ignore[misc]


@pytest.mark.parametrize(
    ("annotation", "path", "named"),
    [
        (Socket, "Order.what", "test_field_types.Socket"),
        (threading.Lock, "Order.what", LOCK),
        (Event, "Order.what", "test_field_types.Event"),
        (io.TextIOWrapper, "Order.what", "_io.TextIOWrapper"),
        (Fraction, "Order.what", "fractions.Fraction"),
        (complex, "Order.what", "a complex,"),
        (Path, "Order.what", "pathlib.Path"),
        (pd.Timestamp, "Order.what", "Timestamp"),
        (np.ndarray, "Order.what", "numpy.ndarray"),
        (Iterator[int], "Order.what", "Iterator"),
        (Generator, "Order.what", "Generator"),
        (Callable[[int], int], "Order.what", "Callable"),
        (type[int], "Order.what", "type"),
        (Socket | None, "Order.what", "Socket"),
        (list[Socket], "Order.what", "Socket"),
        (dict[str, tuple[Socket, ...]], "Order.what", "Socket"),
        (Annotated[Socket, "why"], "Order.what", "Socket"),
        (NewType("Door", Socket), "Order.what", "Socket"),
        (Within, "Order.what.lock", LOCK),
        (list[Within], "Order.what.lock", LOCK),
        (Names, "Order.what['file']", "_io.TextIOWrapper"),
    ],
)
def test_a_type_that_cannot_be_sent_is_refused_with_its_component_and_field(
    topology: Any, annotation: Any, path: str, named: str
) -> None:
    class Orders(Spout[Any]):
        emits = record(annotation)

        def records(self) -> Iterator[Any]:
            return iter(())

    refused(
        RecordMismatch,
        lambda: topology.spout("orders", Orders()),
        "'orders'",
        f"{path} is a ",
        named,
        "cannot travel to another process. It may be: str, bytes, int",
        "Keep the values of these that it is made of, or its bytes",
    )


def test_a_record_within_another_is_refused_if_it_cannot_be_rebuilt() -> None:
    with pytest.raises(RecordMismatch, match=r"Order\.what: NamesOfFiles is a dict.* content"):
        Schema.of(record(NamesOfFiles))


def test_types_in_plain_tuples_are_checked(topology: Any, lines: Any) -> None:
    def pairs(line: Any) -> Iterator[tuple[str, Socket]]:
        yield from ()

    refused(
        RecordMismatch,
        lambda: lines.shuffle().bolt("pairs", pairs, fields=("word", "socket")),
        "'pairs'",
        "Socket",
    )


# ---- which types are accepted -------------------------------------------------------------------

Value = TypeVar("Value")


class Tree(NamedTuple):
    value: int
    children: list[Tree]


class Box(NamedTuple, Generic[Value]):
    content: Value


class Options(TypedDict, total=False):
    color: Color


@pytest.mark.parametrize(
    ("annotation", "classes"),
    [
        (Any, set()),
        (object, set()),
        (str | None, set()),
        (Decimal | datetime | date | UUID, set()),
        (Sequence[Mapping[str, int]], set()),
        (Number, set()),
        (np.int64, set()),
        (Literal["a", Color.RED], {Color}),
        (dict[Color, list[Point]], {Color, Point}),
        (NewType("Tint", Color), {Color}),
        (Annotated[Line, 1], {Line, Point, Color, Access}),
        (Options, {Color}),
        (Tree, {Tree}),
        (Box[Level], {Box, Level}),
        ("Socket | NotThere", set()),  # cannot be read here
    ],
)
def test_a_schema_has_the_classes_that_annotations_name(annotation: Any, classes: Any) -> None:
    order = record(annotation)
    assert {*Schema.of(order).classes} == {order, *classes}


def test_an_annotation_that_cannot_be_read_hides_no_other() -> None:
    class Order(NamedTuple):
        what: NotThere  # type: ignore[name-defined]  # noqa: F821
        color: Color

    assert Color in Schema.of(Order).classes


# ---- as JSON, in a file and in Kafka ------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "json"),
    [
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        (date(2026, 1, 2), "2026-01-02"),
        (time(3, 4), "03:04:00"),
        (timedelta(-1, 3600), "P-1DT3600.000000S"),
        (Decimal("1.50"), "1.50"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Color.RED, "red"),
        ((1, Level.LOW), [1, 1]),
        (
            Line((Point(date(2026, 1, 2)),)),
            {"ends": [{"x": "2026-01-02", "color": None}], "access": 1},
        ),
    ],
)
def test_values_of_these_types_become_json(tmp_path: Path, value: Any, json: Any) -> None:
    assert loads(as_bytes([value]) or b"") == [json]
    sink = JsonLines(tmp_path / "out.jsonl")
    sink.prepare(Context("t", "out", 1, 0, 1))
    sink.process(Field(value))
    sink.cleanup()
    assert loads((tmp_path / "out.jsonl").read_text()) == {"value": json}


def test_values_of_protobuf_may_have_any_keys() -> None:
    assert named({UUID(int=7): [(1, Color.RED)]}) == {UUID(int=7): [(1, Color.RED)]}


@pytest.mark.parametrize("value", [{1}, frozenset(), b"", np.int64(1), object()])
def test_json_refuses_other_types(value: Any) -> None:
    with pytest.raises(TypeError, match=rf"\[0\]: a .*{type(value).__name__} is not for"):
        as_bytes([value])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [Point(float("inf"))]}, r"a\[0\]\.x: inf is not for JSON: make it None or a text"),
        ({"a": Line(({1},))}, r"a\.ends\[0\]: a set is not for JSON: make it a list"),
        ({"a": {(1, 2): 3}}, "a: a key that is a tuple is not for JSON"),
        ({"a": {1: 2, "1": 3}}, "a: the keys 1 and '1' are one in JSON"),
        ({1: 2, "1": 3}, "the keys 1 and '1' are one in JSON"),
        ([Point(1), {True: 2, "true": 3}], r"\[1\]: the keys True and 'true' are one in JSON"),
        ({"a": [{"b": {None: 2, "null": 3}}]}, r"a\[0\]\['b'\]: the keys None and 'null' are"),
    ],
)
def test_json_says_where_in_a_record_it_lacks_a_value(value: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        as_bytes(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            defaultdict(int),
            r"a collections\.defaultdict, which a state does not store: keep a dict",
        ),
        (
            Color.RED,
            r"Color, which no annotation .*: name it there, as in `dict\[str, Color\]`",
        ),
    ],
)
def test_a_state_says_what_to_keep_in_place_of_a_value(value: Any, message: str) -> None:
    with pytest.raises(Unserialisable, match=message):
        StoredValues([], "a state").plain([value])


def boxed(level: Any) -> Box[int]:
    return Box(level)


def boxes() -> Iterator[Box[int]]:
    yield Box(1)


@pytest.mark.parametrize(
    "declare",
    [
        lambda topology: topology.spout("boxes", Records(boxes)),
        lambda topology: topology.spout("boxes", Records([Box(1)]), fields=Box[int]),
        lambda topology: topology.spout("boxes", Records([Box(1)], type=Box)).map(boxed),
    ],
)
def test_an_alias_of_a_generic_class_is_no_record_type(declare: Any) -> None:
    with pytest.raises(RecordMismatch, match=r"Box\[int\] is no class: use Box, or derive a class"):
        declare(RightTopology("boxes"))


@pytest.mark.parametrize("annotation", [set[int], frozenset[int], time, timedelta, UUID])
def test_spark_refuses_types_that_it_lacks(annotation: Any) -> None:
    with pytest.raises(RecordMismatch, match=r"Order\.what"):
        records_of(record(annotation), "Order")


# ---- through a topology -------------------------------------------------------------------------

VALUES: list[Any] = [
    *(Color.RED, Level.HIGH, Unit.METRE, Access.READ | Access.WRITE),
    *(datetime(2026, 1, 2, 3, 4, tzinfo=UTC), date(2026, 1, 2), Decimal("1.50"), UUID(int=7)),
    *((1, (2,)), {1, 2}, frozenset([Color.GREEN]), {(1, Color.RED): {"a": (Point(1),)}}),
    *(Point({"a"}, Color.RED), Line((Point(1), Point(None))), [Line(())], None),
]


class Values(Spout[Field]):
    def records(self) -> Iterator[Field]:
        yield from map(Field, VALUES)


def same(record: Field) -> Iterator[Field]:
    yield Field([record.value])


class Seen(Bolt[Field, None]):
    def prepare(self, context: Any) -> None:
        self.seen: list[Any] = []

    def process(self, record: Field) -> None:
        self.seen.append(record.value)

    def result(self) -> Any:
        return self.seen


@pytest.mark.parametrize("layout", [None, Layout.ISOLATE])
def test_values_of_every_type_pass_through_a_topology(layout: Layout | None) -> None:
    topology = RightTopology("values")
    values = topology.spout("values", Values())
    values.shuffle().bolt("same", same).shuffle().bolt("seen", Seen)
    if layout is None:
        results = run_inline(topology.graph(), clock=ManualClock(), steps_max=10_000).results
        (seen,) = results["seen"]
    else:
        run = SimCluster(0).submit(topology.graph(), layout)
        assert run.wait(60.0)
        (seen,) = run.results("seen")
    expected = sorted(repr(exactly([value])) for value in VALUES)
    assert sorted(repr(exactly(value)) for value in seen) == expected


# ---- through a program of batches ---------------------------------------------------------------


class Sale(NamedTuple):
    day: date
    color: Color
    price: Decimal
    lines: tuple[Line, ...]


SALES = [
    Sale(date(2026, 1, number % 3 + 1), color, Decimal(number) / 4, (Line((Point(number),)),))
    for number, color in enumerate([*Color] * 6)
]


@pytest.mark.parametrize("layout", [None, Layout.ISOLATE])
def test_values_of_every_type_pass_through_batches(layout: Layout | None) -> None:
    seen: list[Sale] = []
    topology, state = RightTopology("sales"), MemoryState()
    spout = FixedBatchSpout(SALES, 5, type=Sale)
    sales = batches(topology, "sales", spout, store=InMemory()).shuffle(parallelism=2)
    sales.partition_by("color", parallelism=2).peek(seen.append)
    sales.group_by("day").aggregate(count(), state=state, parallelism=2, name="days")
    if layout is None:
        run_inline(topology.graph(), clock=ManualClock(), steps_max=10_000)
    else:
        assert SimCluster(0).submit(topology.graph(), layout).wait(60.0)
    assert sorted(map(repr, seen)) == sorted(map(repr, SALES))
    assert dict(state.items()) == {date(2026, 1, day): 4 for day in (1, 2, 3)}


def test_an_enum_in_the_keys_of_a_state_is_refused() -> None:
    program = batches(Topology("sales"), "sales", FixedBatchSpout(SALES, 5, type=Sale))
    for name in ("color", "lines"):
        refused(
            RecordMismatch,
            lambda name=name: program.group_by(name).aggregate(count(), state=MemoryState()),
            f"group_by({name})",
            "the Enum",
            "add a field with its value",
        )
