"""Arrow types of annotated record fields, and conversions of their values, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, is_dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from itertools import accumulate, chain, pairwise
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

from sunshower.arguments import check_all
from sunshower.errors import RecordMismatch, ResultMismatch, Unserialisable
from sunshower.field_types import record_fields
from sunshower.records import Schema

TIMESTAMP = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class FieldKind:
    """The type of a field or of its elements. `path` names it: `Order.lines[].price`."""

    path: str
    type: pa.DataType
    optional: bool
    takes: tuple[Any, ...]  # accepted classes of values
    refuses: tuple[Any, ...] = ()  # refused ones: Arrow would convert them without an error

    def array(self, values: Sequence[Any]) -> pa.Array:
        """Values as a column. Raises Unserialisable for one that is not of this kind."""
        for found in set(map(type, values)):
            if found is NoneType:
                if not self.optional:
                    raise Unserialisable(
                        f"{self.path} is None: annotate it as `… | None`, or fill it"
                    )
            elif not issubclass(found, self.takes) or issubclass(found, self.refuses):
                wanted = " or ".join(one.__name__ for one in self.takes)
                raise Unserialisable(f"{self.path} is a {found.__name__}, and {wanted} is declared")
        try:
            return self.encode(values)
        except (pa.ArrowException, ArithmeticError, ValueError, TypeError) as error:
            raise Unserialisable(f"{self.path}: {error}") from error

    def values(self, array: pa.Array) -> list[Any]:
        """A column as values, None for null. Raises ResultMismatch for nulls in a non-optional
        field."""
        if array.null_count and not self.optional:
            raise ResultMismatch(
                f"{self.path} is null in {array.null_count} of {len(array)} rows: annotate it as "
                "`… | None`, or leave these rows out"
            )
        return self.decode(array)

    def encode(self, values: Sequence[Any]) -> pa.Array:
        """Implements `array` for values whose classes have been checked."""
        return pa.array(values, self.type)

    def decode(self, array: pa.Array) -> list[Any]:
        """Implements `values` for a column whose nulls have been checked."""
        values: list[Any] = array.to_pylist()
        return values


PLAIN: dict[Any, tuple[pa.DataType, tuple[Any, ...], tuple[Any, ...]]] = {
    int: (pa.int64(), (Integral,), (bool,)),
    float: (pa.float64(), (Real,), (bool,)),
    bool: (pa.bool_(), (bool,), ()),
    str: (pa.string(), (str,), ()),
    bytes: (pa.binary(), (bytes,), ()),
    date: (pa.date32(), (date,), (datetime,)),
}


@dataclass(frozen=True)
class Timestamps(FieldKind):
    """Timestamps of any time zone; they come back in UTC."""

    def encode(self, values: Sequence[Any]) -> pa.Array:
        if any(value is not None and value.utcoffset() is None for value in values):
            raise Unserialisable(
                f"{self.path} has no zone, and Spark would guess one: give it, as in "
                "moment.replace(tzinfo=UTC)"
            )
        moments = [None if value is None else value.astimezone(UTC) for value in values]
        return pa.array(moments, self.type)

    def decode(self, array: pa.Array) -> list[Any]:
        return [None if value is None else value.astimezone(UTC) for value in array.to_pylist()]


@dataclass(frozen=True)
class Decimals(FieldKind):
    """Decimal numbers; one with too many digits is refused, not rounded."""

    def encode(self, values: Sequence[Any]) -> pa.Array:
        for value in values:
            if isinstance(value, Decimal) and not value.is_finite():
                raise Unserialisable(f"{self.path} is {value}, which Spark's decimals cannot be")
        return pa.array(values, self.type)


@dataclass(frozen=True, kw_only=True)
class EnumMembers(FieldKind):
    """Members of an Enum, stored as their values."""

    members: type[Enum]
    inner: FieldKind

    def encode(self, values: Sequence[Any]) -> pa.Array:
        return self.inner.array([None if value is None else value.value for value in values])

    def decode(self, array: pa.Array) -> list[Any]:
        known: dict[Any, Any] = {None: None}
        try:
            for value in array.unique().to_pylist():
                known[value] = None if value is None else self.members(value)
        except ValueError as error:
            raise ResultMismatch(f"{self.path}: {error}") from None
        return [known[value] for value in array.to_pylist()]


@dataclass(frozen=True, kw_only=True)
class Lists(FieldKind):
    """Lists, or tuples of any length, with elements of one kind."""

    element: FieldKind

    def encode(self, values: Sequence[Any]) -> pa.Array:
        elements = self.element.array(list(chain.from_iterable(filter(None, values))))
        offsets, missing = _offsets(values)
        return pa.ListArray.from_arrays(offsets, elements, self.type, mask=missing)

    def decode(self, array: pa.Array) -> list[Any]:
        first, count, places = _slices_of(array)
        elements, make = self.element.values(array.values.slice(first, count)), self.takes[0]
        return [None if place is None else make(elements[place]) for place in places]


@dataclass(frozen=True, kw_only=True)
class Dictionaries(FieldKind):
    """Dictionaries with keys of one kind and values of one kind."""

    key: FieldKind
    value: FieldKind

    def encode(self, values: Sequence[Any]) -> pa.Array:
        full = [value for value in values if value]
        keys = self.key.array(list(chain.from_iterable(full)))
        items = self.value.array([item for value in full for item in value.values()])
        offsets, missing = _offsets(values)
        return pa.MapArray.from_arrays(offsets, keys, items, self.type, mask=missing)

    def decode(self, array: pa.Array) -> list[Any]:
        first, count, places = _slices_of(array)
        keys = self.key.values(array.keys.slice(first, count))
        items = self.value.values(array.items.slice(first, count))
        pairs = list(zip(keys, items, strict=True))
        return [None if place is None else dict(pairs[place]) for place in places]


@dataclass(frozen=True, kw_only=True)
class NestedRecords(FieldKind):
    """Records within a record."""

    schema: Schema
    fields: tuple[FieldKind, ...]

    def encode(self, values: Sequence[Any]) -> pa.Array:
        there = [value for value in values if value is not None]
        columns = list(zip(*map(self._row, there), strict=True)) or [()] * len(self.fields)
        arrays = [kind.array(column) for kind, column in zip(self.fields, columns, strict=True)]
        whole = pa.StructArray.from_arrays(arrays, fields=list(self.type))
        if len(there) == len(values):
            return whole
        places = iter(range(len(there)))
        rows = [None if value is None else next(places) for value in values]
        return whole.take(pa.array(rows, pa.int64()))

    def _row(self, value: Any) -> Sequence[Any]:
        """The fields of a record; one from another worker is a list without names."""
        return value if isinstance(value, list | tuple) else self.schema.rows([value])[0]

    def decode(self, array: pa.Array) -> list[Any]:
        there = array.drop_null() if array.null_count else array
        columns = zip(self.fields, there.flatten(), strict=True)
        found = self.schema.build(zip(*(kind.values(one) for kind, one in columns), strict=True))
        if not array.null_count:
            return found
        records = iter(found)
        return [next(records) if valid else None for valid in array.is_valid().to_pylist()]


def _offsets(values: Sequence[Any]) -> tuple[pa.Array, pa.Array]:
    """Offsets of n lists, shape (n + 1,), and which of them are missing, shape (n,)."""
    lengths = [0 if value is None else len(value) for value in values]
    missing = pa.array([value is None for value in values], pa.bool_())
    return pa.array(list(accumulate(lengths, initial=0)), pa.int32()), missing


def _slices_of(array: pa.Array) -> tuple[int, int, list[slice | None]]:
    """Offset of the first element, number of elements, and the slice of each list among them. A
    null list has no slice, though Arrow may store elements for it."""
    if not len(array):
        return 0, 0, []
    offsets = array.offsets.to_pylist()
    first = offsets[0]
    places = [
        slice(start - first, end - first) if valid else None
        for (start, end), valid in zip(pairwise(offsets), array.is_valid().to_pylist(), strict=True)
    ]
    return first, offsets[-1] - first, places


_ALL = (
    "int, float, bool, str, bytes, Decimal, date, datetime, an Enum of one of these, list[T], "
    "tuple[T, ...], dict[K, V], a NamedTuple or dataclass of these, or `… | None`"
)


@dataclass(frozen=True)
class Digits:
    """Precision and scale of a decimal, as in `price: Annotated[Decimal, Digits(12, 2)]`. Without
    it they are 38 and 18."""

    precision: int
    scale: int

    def __post_init__(self) -> None:
        check_all(self, {}, "Digits: ")


def kind_of(annotation: Any, path: str, within: tuple[Any, ...] = ()) -> FieldKind:
    """The kind of an annotation. Raises RecordMismatch, naming `path`, if Spark has none."""
    digits = Digits(38, 18)
    if get_origin(annotation) is Annotated:
        annotation, *notes = get_args(annotation)
        digits = next((note for note in notes if isinstance(note, Digits)), digits)
    options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else ()
    if NoneType in options and len(options) == 2:
        (inner,) = (option for option in options if option is not NoneType)
        return replace(kind_of(inner, path, within), optional=True)
    origin, args = get_origin(annotation), get_args(annotation)
    if annotation in PLAIN:
        return FieldKind(path, PLAIN[annotation][0], False, *PLAIN[annotation][1:])
    if annotation is datetime:
        return Timestamps(path, TIMESTAMP, False, (datetime,))
    if annotation is Decimal:
        return _decimals(path, digits)
    if origin is list or (origin is tuple and len(args) == 2 and args[1] is ...):
        element = kind_of(args[0], f"{path}[]", within)
        return Lists(
            path, pa.list_(pa.field("element", element.type)), False, (origin,), element=element
        )
    if origin is dict:
        return _dictionaries(path, args, within)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _members(path, annotation)
    if is_dataclass(annotation) or hasattr(annotation, "_fields"):
        return records_of(annotation, path, within)
    raise RecordMismatch(
        f"{path} is {_readable(annotation)}, which has no type in Spark; it may be {_ALL}"
    )


def records_of(record_type: Any, path: str, within: tuple[Any, ...] = ()) -> NestedRecords:
    """The kind of a record type, with a kind for each of its fields. Raises RecordMismatch."""
    try:
        names = record_fields(record_type)
    except RecordMismatch as error:
        raise RecordMismatch(f"{path}: {error}") from None
    if record_type in within:
        raise RecordMismatch(f"{path} holds itself, and Spark has no endless types; keep an id")
    if not names:
        raise RecordMismatch(f"{path} has no fields, and Spark cannot count rows of none; give one")
    folded = [name.casefold() for name in names]
    if twice := [name for name in names if folded.count(name.casefold()) > 1]:
        raise RecordMismatch(f"{path}: to Spark {' and '.join(twice)} are one name; rename one")
    hints = get_type_hints(record_type, include_extras=True)
    inner = (*within, record_type)
    fields = tuple(kind_of(hints.get(one), f"{path}.{one}", inner) for one in names)
    # Nullable for Arrow: a non-null field is null where its record is. `FieldKind` checks it.
    type = pa.struct([(name, kind.type) for name, kind in zip(names, fields, strict=True)])
    schema = Schema.of(record_type)
    return NestedRecords(path, type, False, (record_type, list), schema=schema, fields=fields)


def _readable(annotation: Any) -> str:
    if get_origin(annotation) in (Union, UnionType):
        return " | ".join(map(_readable, get_args(annotation)))
    return str(annotation if get_args(annotation) else getattr(annotation, "__name__", annotation))


def _decimals(path: str, digits: Digits) -> FieldKind:
    if not 0 <= digits.scale <= digits.precision <= 38:
        raise RecordMismatch(
            f"{path} has {digits}; Spark has up to 38 digits, and the scale is a part of them"
        )
    return Decimals(path, pa.decimal128(digits.precision, digits.scale), False, (Decimal,))


def _dictionaries(path: str, args: Sequence[Any], within: Any) -> FieldKind:
    key = kind_of(args[0], f"{path}.keys()", within)
    value = kind_of(args[1], f"{path}.values()", within)
    if key.optional or isinstance(key, Dictionaries | NestedRecords | Lists):
        raise RecordMismatch(
            f"{path}: keys of Spark's maps are never null, and here are plain values; "
            "make it a list of records"
        )
    type = pa.map_(key.type, value.type)
    return Dictionaries(path, type, False, (dict,), key=key, value=value)


def _members(path: str, members: type[Enum]) -> FieldKind:
    kinds = {type(member.value) for member in members}
    if len(kinds) != 1 or not kinds <= PLAIN.keys():
        raise RecordMismatch(
            f"{path} is the Enum {members.__name__}, whose values are not all of one plain type; "
            "give it values that are all strings, or all whole numbers"
        )
    plain = kind_of(kinds.pop(), path)
    inner = FieldKind(path, plain.type, True, plain.takes, plain.refuses)
    return EnumMembers(path, plain.type, False, (members,), members=members, inner=inner)
