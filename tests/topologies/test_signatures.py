"""Reads the record types of spouts, bolts and functions from annotations and base classes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator, Iterable, Iterator
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Never, Self, TypeVar

import pytest

from sunshower import BatchBolt, Bolt, Counter, Derived, Number, OnStream, Spout, TextFiles, batch
from sunshower.errors import TopologyError
from sunshower.records import Schema
from sunshower.topologies.graph import Level
from sunshower.topologies.signatures import (
    Signature,
    bolt_signature,
    fits,
    result_record,
    spout_signature,
    type_arguments,
)
from sunshower.topologies.sources import Line
from tests.topologies.examples import Count, Manual, ManualSpout, Order, Total, Word, count

if TYPE_CHECKING:
    from somewhere import Elsewhere  # type: ignore[import-not-found]

T = TypeVar("T")
S = TypeVar("S")


class Grandchild(Count):
    pass


class Middle(Bolt[T, S], Generic[S, T]):  # its variables have another order
    def process(self, record: T) -> Iterable[S] | None: ...


class Leaf(Middle[Total, Word]):
    pass


class Mixed(dict[str, int], Middle[Total, T]):
    pass


class Bare(Bolt):  # type: ignore[type-arg]
    def process(self, record: Any) -> Any: ...


@pytest.mark.parametrize(
    ("cls", "base", "arguments"),
    [
        (Count, Bolt, (Word, Total)),
        (Grandchild, Bolt, (Word, Total)),
        (Leaf, Bolt, (Word, Total)),
        (Mixed, Bolt, (Any, Total)),
        (Bare, Bolt, (Any, Any)),
        (Counter, Spout, (Number,)),
        (TextFiles, Spout, (Line,)),
    ],
)
def test_type_arguments_are_followed_through_subclasses(
    cls: type[Any], base: type[Any], arguments: tuple[Any, ...]
) -> None:
    assert type_arguments(cls, base) == arguments


class Columns(BatchBolt[Line, Word]):
    def process(self, table: Any) -> Derived | None: ...


def test_the_level_follows_from_the_implemented_methods() -> None:
    assert bolt_signature(Count, "") == Signature(Level.PROCESS, Word, Total)
    assert bolt_signature(Manual(), "") == Signature(Level.EXECUTE, Word, Total)
    assert bolt_signature(Columns, "") == Signature(Level.BATCH, Line, Word)
    assert bolt_signature(count, "") == Signature(Level.FUNCTION, Word, Total)
    assert spout_signature(Counter(), "") == Signature(Level.RECORDS, NoneType, Number)
    assert spout_signature(ManualSpout, "") == Signature(Level.NEXT_TUPLE, NoneType, Word)


def iterator(word: Word) -> Iterator[Total]: ...
def generator(word: Word) -> Generator[Total, None, None]: ...
def optional(word: Word) -> list[Total] | None: ...
def with_streams(word: Word) -> Iterator[Total | OnStream]: ...
def untyped_list(word: Word) -> list: ...  # type: ignore[type-arg]
def sink(word: Word) -> None: ...
def only_streams(word: Word) -> Iterator[OnStream]: ...
def never(word: Word) -> Iterable[Never]: ...
def with_default(word: Word, size: int = 3) -> Iterator[Total]: ...
def with_size(size: int, word: Word) -> Iterator[Total]: ...


class Callable:
    size: int

    def __call__(self, word: Word) -> Iterator[Total]: ...

    def method(self, word: Word) -> Iterator[Total]: ...


@pytest.mark.parametrize(
    ("function", "emits"),
    [
        (iterator, Total),
        (generator, Total),
        (optional, Total),
        (with_streams, Total),
        (with_default, Total),
        (partial(with_size, 3), Total),
        (Callable(), Total),
        (Callable().method, Total),
        (untyped_list, Any),
        (sink, NoneType),
        (only_streams, NoneType),
        (never, NoneType),
    ],
)
def test_function_is_read_from_its_annotations(function: Any, emits: Any) -> None:
    assert bolt_signature(function, "") == Signature(Level.FUNCTION, Word, emits)


def test_a_batch_function_is_known_by_its_decorator() -> None:
    @batch
    def columns(table: Elsewhere) -> Derived: ...

    @batch
    def swallow(table: Elsewhere) -> None: ...

    assert bolt_signature(columns, "") == Signature(Level.BATCH, Any, Any)
    assert bolt_signature(swallow, "") == Signature(Level.BATCH, Any, NoneType)


def test_an_annotation_that_only_a_type_checker_can_read_is_refused() -> None:
    def function(word: Elsewhere) -> Iterator[Total]: ...

    def misspelled(word: Word) -> dt.Tiem: ...  # type: ignore[name-defined]

    with pytest.raises(TopologyError, match=r"bolt 'it': .* function .*'Elsewhere' is not defined"):
        bolt_signature(function, "bolt 'it'")
    with pytest.raises(TopologyError, match=r"of misspelled cannot be read .*no attribute 'Tiem'"):
        bolt_signature(misspelled, "bolt 'it'")


class Readable(NamedTuple):
    word: str

    @classmethod
    def of(cls, word: Word) -> Self:
        return cls(word.word)

    def parts(self) -> Iterator[Self]: ...


@pytest.mark.parametrize("function", [Readable.of, Readable.parts])
def test_self_is_the_class_of_the_method(function: Any) -> None:
    assert result_record(function, "it") is Readable


@pytest.mark.parametrize(
    ("annotation", "record", "fit"),
    [
        (Word, Word, True),
        (Word, Readable, False),
        (Any, Word, True),
        (object, Word, True),
        (T, Word, True),
        (Order, Order, True),
        (Order, Word, False),
        (Word | Order, Order, True),
        (Word | Order, Total, False),
        (tuple, Word, True),
        (tuple, Order, False),
        (tuple[str, int], Total, True),
        (tuple[str], Total, False),
        (tuple[Any, ...], Total, True),
    ],
)
def test_record_fits_what_a_bolt_reads(annotation: Any, record: type[Any], fit: bool) -> None:
    assert fits(annotation, Schema.of(record)) is fit


def test_plain_tuple_is_no_record_type() -> None:
    assert not fits(Word, Schema(("word",)))
    assert fits(tuple[str], Schema(("word",)))
    assert not fits(tuple[str, int], Schema(("word",)))
