"""Values of every type that a field may have arrive equal and of their type; others are refused."""

from __future__ import annotations

import io
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from datetime import timedelta as delta
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from sunshower.codec import Codec, RowList
from sunshower.errors import Unserialisable
from sunshower.runtime.plan import PlannedStream
from sunshower.runtime.tracking.batch import Batch
from sunshower.runtime.transport.packets import decode_frame, encode_frame
from sunshower.topologies.graph import StreamSpec
from tests.runtime.field_values import SCHEMA, Color, Field, Line, Point, exactly

STREAM = PlannedStream(0, "spout", StreamSpec("default", SCHEMA), SCHEMA.classes)


def travelled(value: Any) -> Any:
    frame = decode_frame(encode_frame(3, 1, Batch(0, 7, [Field(value)]), STREAM, 1 << 24), [STREAM])
    assert frame.error is None
    ((received,),) = frame.batch.records
    return received


def test_a_zone_keeps_its_name_and_so_the_hour_that_the_clock_repeats() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    first = datetime(2026, 10, 25, 2, 30, tzinfo=berlin)
    second = first.replace(fold=1)
    assert travelled([first, second]) == [first, second]
    assert [moment.tzinfo for moment in travelled([first, second])] == [berlin, berlin]
    assert [moment.astimezone(UTC).hour for moment in travelled([first, second])] == [0, 1]


class HalfPast(tzinfo):
    """A time zone that is not a ZoneInfo."""

    def utcoffset(self, at: datetime | None) -> delta:
        return delta(hours=5, minutes=30)

    def dst(self, at: datetime | None) -> None:
        return None


def test_a_zone_of_another_class_becomes_its_offset() -> None:
    at = datetime(2026, 1, 2, tzinfo=HalfPast())
    assert travelled(at) == at
    assert travelled(at).isoformat() == "2026-01-02T00:00:00+05:30"


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


class Other(Enum):
    ONE = 1


class Undeclared(NamedTuple):
    x: int


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.int64(-7), -7),
        (np.uint64((1 << 64) - 1), (1 << 64) - 1),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (Text("a"), "a"),
        (bytearray(b"a"), b"a"),
        (memoryview(b"a"), b"a"),
        (OrderedDict(a=1), {"a": 1}),
        (Undeclared(1), (1,)),
    ],
)
def test_a_subclass_of_a_plain_type_arrives_as_that_type(value: Any, plain: Any) -> None:
    assert exactly(travelled([value])) == exactly([plain])
    if not isinstance(value, bytearray | memoryview):
        with pytest.raises(Unserialisable, match=type(value).__name__):
            Codec(exact=True).encode([value])


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (object(), "object"),
        (threading.Lock(), "_thread.lock"),
        (io.BytesIO(), "_io.BytesIO"),
        (1j, "complex"),
        (np.datetime64("2026-01-01", "ns"), "numpy.datetime64"),
        (np.zeros(2), "numpy.ndarray"),
        (Other.ONE, r"Other, which no record type declares: annotate a field with it"),
        (lambda: 0, "function"),
    ],
)
@pytest.mark.parametrize("within", [lambda value: value, lambda value: {"a": [(value,)]}])
def test_other_values_are_refused_with_component_stream_field_and_type(
    value: Any, named: str, within: Callable[[Any], Any]
) -> None:
    with pytest.raises(
        Unserialisable,
        match=rf"'default' of 'spout' .* field 'value': a value is a .*{named}.*RECORDS",
    ):
        travelled(within(value))


def test_a_property_that_raises_is_the_records_error() -> None:
    class Broken(tzinfo):
        def utcoffset(self, at: datetime | None) -> delta:
            raise ZeroDivisionError("no offset")

    with pytest.raises(Unserialisable, match="field 'value': no offset"):
        travelled(datetime(2026, 1, 1, tzinfo=Broken()))


def deep(wrap: Callable[[Any], Any], levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = wrap(value)
    return value


@pytest.mark.parametrize(
    "wrap",
    [lambda value: (value,), lambda value: frozenset([value]), Point, lambda value: Line((value,))],
)
def test_levels_have_a_limit_when_a_value_is_sent(wrap: Callable[[Any], Any]) -> None:
    value = deep(wrap, 15)
    assert travelled(value) == value
    for levels in (70, 100_000):
        with pytest.raises(Unserialisable, match="nested more than 32 deep"):
            travelled(deep(wrap, levels))


def test_lists_have_a_limit_too() -> None:
    value = deep(lambda inner: [inner], 500)
    assert travelled(value) == value
    with pytest.raises(Unserialisable, match="recursion limit"):
        travelled(deep(lambda inner: [inner], 5_000))


def test_rows_of_a_batch_are_sent_without_a_header_for_each() -> None:
    rows = RowList([("a", Decimal(1)), ("b", Decimal(2))])
    received = travelled(rows)
    assert (type(received), received) == (RowList, rows)
    assert len(Codec().encode(rows)) < len(Codec().encode([*rows]))
    with pytest.raises(Unserialisable, match="values to unpack"):
        travelled(RowList([(1,), (1, 2)]))


def test_threads_can_share_a_codec() -> None:
    codec, errors = Codec(SCHEMA.classes), Counter[str]()
    value = deep(partial(Point, color=Color.RED), 10)

    def work() -> None:
        for _ in range(300):
            errors["other"] += codec.decode(codec.encode([value])) != [value]

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == {"other": 0}
