"""Converts record types to Arrow schemas, and records to tables and back.

docs/CONNECTORS.md has the column of each annotation; Spark has no columns for `time`, `timedelta`
and UUID. Any other annotation raises RecordMismatch at declaration, with the name of the field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import accumulate, chain, pairwise
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Union,
    get_args,
    get_origin,
)
from uuid import UUID

import pyarrow as pa
from pyarrow import types

from sunshower.arguments import check_all
from sunshower.errors import RecordMismatch, ResultMismatch, Unserialisable
from sunshower.field_types import record_fields, stands_for
from sunshower.record_types import hints_of, is_record, record_type_of
from sunshower.records import Schema

# ---- field kinds ---------------------------------------------------------------------------------

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
        for kind in set(map(type, values)):
            self.check_class(kind)
        try:
            return self.encode(values)
        except (pa.ArrowException, ArithmeticError, ValueError, TypeError) as error:
            raise Unserialisable(f"{self.path}: {error}") from error

    def check_class(self, kind: type[Any]) -> None:
        """Raise Unserialisable for the class of a value that is not of this kind."""
        if kind is NoneType:
            if not self.optional:
                raise Unserialisable(f"{self.path} is None: annotate it as `… | None`, or fill it")
        elif not issubclass(kind, self.takes) or issubclass(kind, self.refuses):
            wanted = " or ".join(accepted.__name__ for accepted in self.takes)
            raise Unserialisable(f"{self.path} is a {kind.__name__}, and {wanted} is declared")

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
        return pa.array(values, self.type)

    def decode(self, array: pa.Array) -> list[Any]:
        values: list[Any] = array.to_pylist()
        return values


class Plain(NamedTuple):
    """The column type of an annotation, the classes of values it takes, and refused ones."""

    type: pa.DataType
    takes: tuple[Any, ...]
    refuses: tuple[Any, ...] = ()


@dataclass(frozen=True)
class TypeSystem:
    """The types that columns of a system may have."""

    name: str
    plain: Mapping[Any, Plain]
    digits_max: int  # of a decimal
    folds_case: bool  # names that differ only in case are one name
    names: str = (
        "int, float, bool, str, bytes, Decimal, date, datetime, an Enum of one of these, list[T], "
        "tuple[T, ...], dict[K, V], a NamedTuple or dataclass of these, or `… | None`"
    )


SPARK = TypeSystem(
    "Spark",
    {
        int: Plain(pa.int64(), (Integral,), (bool,)),
        float: Plain(pa.float64(), (Real,), (bool,)),
        bool: Plain(pa.bool_(), (bool,)),
        str: Plain(pa.string(), (str,)),
        bytes: Plain(pa.binary(), (bytes,)),
        date: Plain(pa.date32(), (date,), (datetime,)),
    },
    digits_max=38,
    folds_case=True,
)
PARQUET = replace(
    SPARK,
    name="Parquet",
    plain={
        **SPARK.plain,
        timedelta: Plain(pa.duration("us"), (timedelta,)),
        UUID: Plain(pa.uuid(), (UUID,)),
    },
    digits_max=76,
    folds_case=False,
    names=SPARK.names.replace("datetime,", "datetime, time, timedelta, UUID,"),
)


@dataclass(frozen=True)
class Uuids(FieldKind):
    """UUIDs, handed over as bytes: older versions of pyarrow take nothing else."""

    def encode(self, values: Sequence[Any]) -> pa.Array:
        return pa.array([None if value is None else value.bytes for value in values], self.type)


@dataclass(frozen=True)
class Timestamps(FieldKind):
    """Timestamps of any time zone; they come back in UTC."""

    def encode(self, values: Sequence[Any]) -> pa.Array:
        if any(value is not None and value.utcoffset() is None for value in values):
            raise Unserialisable(
                f"{self.path} has no zone, and readers of its column would guess one: give it, as "
                "in moment.replace(tzinfo=UTC)"
            )
        moments = [None if value is None else value.astimezone(UTC) for value in values]
        return pa.array(moments, self.type)

    def decode(self, array: pa.Array) -> list[Any]:
        return [None if value is None else value.astimezone(UTC) for value in array.to_pylist()]


@dataclass(frozen=True)
class TimesOfDay(FieldKind):
    """Times of a day, without a zone: their columns have none."""

    def encode(self, values: Sequence[Any]) -> pa.Array:
        if any(value is not None and value.tzinfo is not None for value in values):
            raise Unserialisable(
                f"{self.path} has a zone, which a column of times cannot have: remove it, as in "
                "moment.replace(tzinfo=None), or keep it in another field"
            )
        return pa.array(values, self.type)


@dataclass(frozen=True)
class Decimals(FieldKind):
    """Decimal numbers; one with too many digits is refused, not rounded."""

    def encode(self, values: Sequence[Any]) -> pa.Array:
        for value in values:
            if isinstance(value, Decimal) and not value.is_finite():
                raise Unserialisable(
                    f"{self.path} is {value}, which a column of decimals cannot have"
                )
        try:
            return pa.array(values, self.type)
        except pa.ArrowInvalid as error:
            precision, scale = self.type.precision, self.type.scale
            raise Unserialisable(
                f"{self.path}: {error}. The column has {precision} digits, {scale} of them "
                "decimals: declare others, as in Annotated[Decimal, Digits(38, 6)]"
            ) from error


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
    arguments: tuple[Any, ...]  # of an alias such as Box[int]

    def encode(self, values: Sequence[Any]) -> pa.Array:
        present = [value for value in values if value is not None]
        columns = list(zip(*map(self.values_of, present), strict=True)) or [()] * len(self.fields)
        arrays = [kind.array(column) for kind, column in zip(self.fields, columns, strict=True)]
        whole = pa.StructArray.from_arrays(arrays, fields=list(self.type))
        if len(present) == len(values):
            return whole
        places = iter(range(len(present)))
        rows = [None if value is None else next(places) for value in values]
        return whole.take(pa.array(rows, pa.int64()))

    def values_of(self, value: Any) -> Sequence[Any]:
        """The fields of a record; one from another worker is a list without names."""
        return value if isinstance(value, list | tuple) else self.schema.rows([value])[0]

    def decode(self, array: pa.Array) -> list[Any]:
        present = array.drop_null() if array.null_count else array
        columns = zip(self.fields, present.flatten(), strict=True)
        built = self.schema.build(
            zip(*(kind.values(column) for kind, column in columns), strict=True)
        )
        if not array.null_count:
            return built
        records = iter(built)
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


@dataclass(frozen=True)
class Digits:
    """Precision and scale of a decimal, as in `price: Annotated[Decimal, Digits(12, 2)]`. Without
    it they are 38 and 18."""

    precision: int
    scale: int

    def __post_init__(self) -> None:
        check_all(self, {}, "Digits: ")


def kind_of(
    annotation: Any, path: str, types: TypeSystem = SPARK, within: tuple[Any, ...] = ()
) -> FieldKind:
    """The kind of an annotation. Raises RecordMismatch, naming `path`, if it has no column type."""
    annotation, digits = _bare(annotation)
    options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else ()
    if NoneType in options and len(options) == 2:
        (inner,) = (option for option in options if option is not NoneType)
        return replace(kind_of(inner, path, types, within), optional=True)
    origin, args = get_origin(annotation), get_args(annotation)
    if annotation in types.plain:
        column, kind = types.plain[annotation], Uuids if annotation is UUID else FieldKind
        return kind(path, column.type, False, *column[1:])
    if annotation is datetime:
        return Timestamps(path, TIMESTAMP, False, (datetime,))
    if annotation is time and timedelta in types.plain:
        return TimesOfDay(path, pa.time64("us"), False, (time,))
    if annotation is Decimal:
        return _decimals(path, digits, types)
    if origin is list or (origin is tuple and len(args) == 2 and args[1] is ...):
        element = kind_of(args[0], f"{path}[]", types, within)
        return Lists(
            path, pa.list_(pa.field("element", element.type)), False, (origin,), element=element
        )
    if origin is dict:
        return _dictionaries(path, args, types, within)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _members(path, annotation, types)
    if is_record(origin or annotation):
        return records_of(annotation, path, types, within)
    raise RecordMismatch(
        f"{path} is {_readable(annotation)}, which has no type in {types.name}; it may be "
        f"{types.names}"
    )


def _bare(annotation: Any) -> tuple[Any, Digits]:
    """An annotation without names and notes that do not change its column type, and its digits."""
    digits = Digits(38, 18)
    while True:
        kinds = {*map(type, get_args(annotation))} if get_origin(annotation) is Literal else ()
        if get_origin(annotation) is Annotated:
            annotation, *notes = get_args(annotation)
            digits = next((note for note in notes if isinstance(note, Digits)), digits)
        elif len(kinds) == 1:
            (annotation,) = kinds
        else:
            return stands_for(annotation), digits


def records_of(
    record_type: Any, path: str, types: TypeSystem = SPARK, within: tuple[Any, ...] = ()
) -> NestedRecords:
    """The kind of a record type, or of an alias such as Box[int], with a kind for each of its
    fields. Raises RecordMismatch."""
    arguments, annotation = get_args(record_type), record_type
    record_type = get_origin(record_type) or record_type
    try:
        names = record_fields(record_type)
    except RecordMismatch as error:
        raise RecordMismatch(f"{path}: {error}") from None
    hints, inner = hints_of(annotation), (*within, annotation)
    if annotation in within:
        raise RecordMismatch(
            f"{path} holds itself, and {types.name} has no endless types; keep an id"
        )
    if not names:
        raise RecordMismatch(
            f"{path} has no fields, and {types.name} cannot count rows of none; give one"
        )
    folded = [name.casefold() for name in names]
    if types.folds_case and (
        twice := [name for name in names if folded.count(name.casefold()) > 1]
    ):
        raise RecordMismatch(
            f"{path}: to {types.name} {' and '.join(twice)} are one name; rename one"
        )
    fields = tuple(kind_of(hints.get(name), f"{path}.{name}", types, inner) for name in names)
    described = record_type_of(record_type)
    if types is PARQUET and described is not None:  # which `record_reader` reads, as messages
        names = tuple(described.names.get(name, name) for name in names)
    # Nullable for Arrow: a non-null field is null where its record is. `FieldKind` checks it.
    type = pa.struct([(name, kind.type) for name, kind in zip(names, fields, strict=True)])
    schema = Schema.of(record_type)
    takes = (schema.instances, list)
    return NestedRecords(
        path, type, False, takes, schema=schema, fields=fields, arguments=arguments
    )


def _readable(annotation: Any) -> str:
    if get_origin(annotation) in (Union, UnionType):
        return " | ".join(map(_readable, get_args(annotation)))
    return str(annotation if get_args(annotation) else getattr(annotation, "__name__", annotation))


def _decimals(path: str, digits: Digits, types: TypeSystem) -> FieldKind:
    if not 0 <= digits.scale <= digits.precision <= types.digits_max:
        raise RecordMismatch(
            f"{path} has {digits}; {types.name} has up to {types.digits_max} digits, and the scale "
            "is a part of them"
        )
    make = pa.decimal128 if digits.precision <= SPARK.digits_max else pa.decimal256
    return Decimals(path, make(digits.precision, digits.scale), False, (Decimal,))


def _dictionaries(path: str, args: Sequence[Any], types: TypeSystem, within: Any) -> FieldKind:
    key = kind_of(args[0], f"{path}.keys()", types, within)
    value = kind_of(args[1], f"{path}.values()", types, within)
    if key.optional or isinstance(key, Dictionaries | NestedRecords | Lists):
        raise RecordMismatch(
            f"{path}: keys of {types.name}'s maps are never null, and here are plain values; "
            "make it a list of records"
        )
    type = pa.map_(key.type, value.type)
    return Dictionaries(path, type, False, (dict,), key=key, value=value)


def _members(path: str, members: type[Enum], types: TypeSystem) -> FieldKind:
    kinds = {type(member.value) for member in members}
    if len(kinds) != 1 or not kinds <= types.plain.keys():
        raise RecordMismatch(
            f"{path} is the Enum {members.__name__}, whose values are not all of one plain type; "
            "give it values that are all strings, or all whole numbers"
        )
    plain = kind_of(kinds.pop(), path, types)
    inner = FieldKind(path, plain.type, True, plain.takes, plain.refuses)
    try:
        inner.array([member.value for member in members])
    except Unserialisable as error:
        raise RecordMismatch(f"{error}, a value of the Enum {members.__name__}") from None
    return EnumMembers(path, plain.type, False, (members,), members=members, inner=inner)


# ---- arrow types ---------------------------------------------------------------------------------
# Converts Arrow types that Spark would misread to types that it reads correctly.
#
# Spark's Arrow reader trusts the declared layout: a large_string declared as string, or
# nanoseconds declared as microseconds, become other values without an error.


def normalise(table: pa.Table) -> pa.Table:
    """The same values in types that Spark reads correctly. Raises Unserialisable, naming the
    column, for a type that Spark does not have, and for values that the new type cannot hold."""
    fields = [
        pa.field(field.name, normal_type(field.type, field.name), True) for field in table.schema
    ]
    return casts(table, pa.schema(fields))


def casts(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast a table column by column. Raises Unserialisable for values that would change."""
    columns = []
    for field, column in zip(schema, table.columns, strict=True):
        try:
            if types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)  # noqa: PLW2901
            columns.append(column.cast(field.type))
        except pa.ArrowException as error:
            raise Unserialisable(
                f"column {field.name!r} cannot go from {column.type} to {field.type} as it is: "
                f"{error}"
            ) from error
    return pa.Table.from_arrays(columns, schema=schema)


_TEXT = (types.is_string, types.is_large_string, types.is_string_view)
_BINARY = (
    *(types.is_binary, types.is_large_binary),
    *(types.is_fixed_size_binary, types.is_binary_view),
)
_LISTS = (
    *(types.is_list, types.is_large_list, types.is_fixed_size_list),
    *(types.is_list_view, types.is_large_list_view),
)
_NUMBERS_AND_DATES = (types.is_integer, types.is_floating, types.is_decimal, types.is_date)
_KEPT = {pa.float32(), pa.float64(), pa.bool_(), pa.date32()}


def _is(type: pa.DataType, family: Iterable[Callable[[pa.DataType], bool]]) -> bool:
    return any(check(type) for check in family)


def normal_type(type: pa.DataType, path: str) -> pa.DataType:
    """The type Spark reads for values of `type`. Raises Unserialisable, naming `path`."""
    if types.is_dictionary(type):
        return normal_type(type.value_type, path)
    if _is(type, _TEXT):
        return pa.string()
    if _is(type, _BINARY):
        return pa.binary()
    if types.is_timestamp(type):
        return pa.timestamp("us", tz="UTC" if type.tz else None)
    if types.is_date64(type):
        return pa.date32()
    if types.is_unsigned_integer(type):
        return {8: pa.int16(), 16: pa.int32()}.get(type.bit_width, pa.int64())
    if types.is_float16(type):
        return pa.float32()
    if types.is_decimal(type) and type.precision <= 38 and 0 <= type.scale <= type.precision:
        return pa.decimal128(type.precision, type.scale)
    if types.is_signed_integer(type) or type in _KEPT:
        return type
    return _nested_type(type, path)


def _nested_type(type: pa.DataType, path: str) -> pa.DataType:
    if _is(type, _LISTS):
        return pa.list_(pa.field("element", normal_type(type.value_type, f"{path}[]")))
    if types.is_map(type):
        key = normal_type(type.key_type, f"{path}.keys()")
        return pa.map_(key, normal_type(type.item_type, f"{path}.values()"))
    if types.is_struct(type):
        return pa.struct(
            [(field.name, normal_type(field.type, f"{path}.{field.name}")) for field in type]
        )
    raise Unserialisable(
        f"column {path!r} is {type}, which Spark does not have: cast it, or leave it out"
    )


def is_safe(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a cast to a normal type keeps the meaning of the values; the cast itself checks that
    they fit."""
    if types.is_null(given) or given == wanted:
        return True
    if types.is_dictionary(given):
        return is_safe(given.value_type, wanted)
    if types.is_struct(wanted):
        if not types.is_struct(given) or given.names != wanted.names:
            return False
        return all(map(is_safe, (field.type for field in given), (field.type for field in wanted)))
    if types.is_map(wanted):
        if not types.is_map(given):
            return False
        return is_safe(given.key_type, wanted.key_type) and is_safe(
            given.item_type, wanted.item_type
        )
    if types.is_list(wanted):
        return _is(given, _LISTS) and is_safe(given.value_type, wanted.value_type)
    if types.is_timestamp(wanted):
        return types.is_timestamp(given) and (given.tz is None) == (wanted.tz is None)
    if types.is_string(wanted) or types.is_binary(wanted):
        return _is(given, _TEXT if types.is_string(wanted) else _BINARY)
    return any(alike(given) and alike(wanted) for alike in _NUMBERS_AND_DATES)


# ---- record columns ------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecordColumns:
    """A record type as columns: its Arrow schema, and conversions between records and tables."""

    kind: NestedRecords
    arrow: pa.Schema

    @classmethod
    def of(cls, record_type: Any, where: str = "spark", types: TypeSystem = SPARK) -> RecordColumns:
        """Raises RecordMismatch, naming the field, for a type that has no column type."""
        if record_type is tuple:
            raise RecordMismatch(
                f"{where}: plain tuples say nothing of the types of their fields; "
                "declare a NamedTuple or a dataclass (operators take one as fields=Total)"
            )
        try:
            name = getattr(record_type, "__name__", str(record_type))
            kind = records_of(record_type, name, types)
        except RecordMismatch as error:
            raise RecordMismatch(f"{where}: {error}") from None
        return cls(kind, pa.schema(list(kind.type)))

    @property
    def schema(self) -> Schema:
        return self.kind.schema

    def table(self, records: Sequence[Any]) -> pa.Table:
        """Records as a table. Raises Unserialisable for a value that does not match its field."""
        columns = list(zip(*self.schema.rows(records), strict=True))
        columns = columns or [()] * len(self.schema.fields)
        arrays = [
            kind.array(column) for kind, column in zip(self.kind.fields, columns, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=self.arrow)

    def records(self, table: pa.Table) -> list[Any]:
        """The rows of a table that `conform` has returned. Raises ResultMismatch for a null in a
        non-optional field, and for a value that no Enum member has."""
        columns = [
            kind.values(column.combine_chunks() if column.num_chunks else pa.array([], column.type))
            for kind, column in zip(self.kind.fields, table.columns, strict=True)
        ]
        return self.schema.build(zip(*columns, strict=True))

    def check(self, columns: pa.Schema) -> None:
        """Raise ResultMismatch unless such columns can be read as this record type."""
        name, wanted = self.kind.path, self.arrow.names
        if double := [name for at, name in enumerate(columns.names) if name in columns.names[:at]]:
            raise ResultMismatch(
                f"there are two columns {double[0]!r}, and {name} is to have one: join by the "
                f"name, a.join(b, {double[0]!r}), or leave one out, .drop(b[{double[0]!r}])"
            )
        if missing := [name for name in wanted if name not in columns.names]:
            raise ResultMismatch(
                f"{name} has a field {missing[0]!r}, and there is no such column; the columns are: "
                f"{', '.join(columns.names) or 'none'}"
            )
        if more := [name for name in columns.names if name not in wanted]:
            raise ResultMismatch(
                f"there is a column {more[0]!r} that {name} does not have; its fields are: "
                f"{', '.join(wanted)}. Leave it out: .select({', '.join(map(repr, wanted))})"
            )
        for field in self.arrow:
            if not is_safe(columns.field(field.name).type, field.type):
                raise ResultMismatch(
                    f"{name}.{field.name} is {field.type}, and the column is "
                    f"{columns.field(field.name).type}: cast one to the other"
                )

    def conform(self, table: pa.Table) -> pa.Table:
        """Convert a table with these columns to the column order and types that `table` gives.
        Raises ResultMismatch for other columns, and for values that would change."""
        self.check(table.schema)
        try:
            return casts(table.select(self.arrow.names), self.arrow)
        except Unserialisable as error:
            raise ResultMismatch(f"{self.kind.path}: {error}") from error
