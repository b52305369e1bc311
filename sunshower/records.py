"""Records (NamedTuple, dataclass, or tuples with declared fields): schemas, keys, parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import chain
from math import isnan
from operator import attrgetter, countOf, itemgetter
from types import NoneType
from typing import Any, TypeAlias

from sunshower.errors import RecordMismatch, UnknownField
from sunshower.field_types import classes_in, record_fields
from sunshower.record_classes import RecordClass, may_hold_checked, problem_in, record_class

RecordType: TypeAlias = type[Any]
Part: TypeAlias = str | Callable[[Any], Any]  # a field's name, or a function of the record

_PLAIN = frozenset({str, int, bool, bytes, NoneType})  # their values are keys as they are
_NAN = float("nan")  # one object, so that it equals itself as a key
_NO_DECIMAL = Decimal("NaN")
_ANY_DAY = date(2000, 1, 2)


class DictKey(dict[Any, Any]):
    """A dictionary that is a key. Do not change it."""

    def __hash__(self) -> int:  # type: ignore[override]
        return frozenset(self.items()).__hash__()


def key_of(value: Any) -> Any:
    """The key that a value stands for: hashable, and the same before and after a journey to another
    process. Lists, tuples and records are tuples, sets frozensets, dictionaries DictKeys, NumPy's
    values those of Python; NaN equals NaN, and -0.0 is 0.0. A datetime or time with a zone is in
    UTC, so that a moment is one key. Other values are returned as they are."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is float:
        return _NAN if isnan(value) else value or 0.0
    if kind.__module__ == "numpy" and hasattr(value, "tolist"):
        plain = value.tolist()
        return value if type(plain) is kind else key_of(plain)
    for kinds, convert in _CONVERTERS:
        if isinstance(value, kinds):
            return convert(value)
    if dataclasses.is_dataclass(value):
        return tuple(key_of(getattr(value, field.name)) for field in dataclasses.fields(value))
    return value


def _in_utc(value: datetime | time) -> datetime | time:
    offset = value.utcoffset()
    if offset is None:
        return value.replace(fold=0)
    if isinstance(value, time):
        on_a_day = datetime.combine(_ANY_DAY, value.replace(tzinfo=None))
        return (on_a_day - offset).time().replace(tzinfo=UTC, fold=0)
    try:
        return value.astimezone(UTC)
    except OverflowError:  # in the first or the last hours that a datetime can be
        return value


_CONVERTERS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    ((tuple, list), lambda value: tuple(map(key_of, value))),
    (dict, lambda value: DictKey({key_of(name): key_of(one) for name, one in value.items()})),
    ((bytes, bytearray, memoryview), bytes),
    (str, str.__str__),  # of a StrEnum, too
    (int, int),
    (float, lambda value: key_of(float(value))),
    ((set, frozenset), lambda value: frozenset(map(key_of, value))),
    ((datetime, time), _in_utc),
    (Decimal, lambda value: _NO_DECIMAL if value.is_nan() else value),
)


def keys_of_rows(
    getters: Sequence[Callable[[Any], Any]], key: Callable[[Any], Any], rows: Sequence[Any]
) -> Iterable[Any]:
    """`key_of(key(row))` of each row; `getters` get the values that the key is made of, one by one.
    Values that are keys already cost one look at their types."""
    keys = [*map(key, rows)]
    columns = [keys] if len(getters) == 1 else [map(get, rows) for get in getters]
    if all(_PLAIN.issuperset(map(type, values)) for values in columns):
        return keys
    return map(key_of, keys)


def is_table(records: Any) -> bool:
    """Whether records are an Arrow table, rather than a sequence."""
    return not isinstance(records, Sequence)


def prepare_tables() -> None:
    """Load what converting rows to Arrow tables needs, so that the first batch does not wait for
    it: pyarrow imports pandas, if it is installed, when it first converts a list (0.3 s)."""
    import pyarrow as pa

    pa.array([])


def rows_of(values: Any, width: int) -> Iterable[tuple[Any, ...]]:
    """Tuples of `width` values each; undoes `Schema.flat`. Raises ValueError if some are left."""
    if type(values) is not list or type(width) is not int or width < 1 or len(values) % width:
        raise ValueError(f"these are not rows of {width} values")
    if len(values) == width:  # half the time of zip
        return (tuple(values),)
    return zip(*[iter(values)] * width, strict=True)


@dataclass(frozen=True)
class Schema:
    """The fields of one stream's records, in order, and their class.

    `type` is a NamedTuple class, a dataclass, or `tuple` for plain tuples with declared fields.
    `classes` are the Enums and record types that annotations name: those of `type`, within `type`.
    """

    fields: tuple[str, ...]
    type: RecordType = tuple
    classes: tuple[RecordType, ...] = ()

    @classmethod
    def of(cls, record_type: RecordType) -> Schema:
        """Return the schema of a NamedTuple class or a dataclass.

        Raises RecordMismatch for others, for a dataclass that cannot be rebuilt (see
        `record_fields`), and for a field whose values cannot travel to another process.
        """
        fields = record_fields(record_type)
        return cls(fields, record_type, classes_in(record_type, record_type.__name__))

    @property
    def name(self) -> str:
        """The schema as text: `Word(word)` or `(word, count)`."""
        label = "" if self.type is tuple else self.type.__name__
        return f"{label}({', '.join(self.fields)})"

    @property
    def is_tuple(self) -> bool:
        """Whether records are tuples (plain or named) rather than dataclass objects."""
        return issubclass(self.type, tuple)

    def check_field(self, field: str, where: str) -> None:
        """Raise UnknownField, which lists the fields, unless the schema has `field`."""
        if field not in self.fields:
            raise UnknownField(
                f"{where}: there is no field {field!r}; its fields are: {', '.join(self.fields)}"
            )

    def key(self, fields: Sequence[str]) -> Callable[[Any], Any]:
        """Return a getter of `fields` from a record: one value, or a tuple of several."""
        if self.is_tuple:
            return itemgetter(*(self.fields.index(field) for field in fields))
        return attrgetter(*fields)

    def keys(self, fields: Sequence[str], rows: Sequence[Any]) -> Iterable[Any]:
        """The keys (see `key_of`) of records: of one field, or a tuple of several."""
        return keys_of_rows([self.key([field]) for field in fields], self.key(fields), rows)

    def fits(self, records: Sequence[Any], kinds: set[RecordType]) -> bool:
        """Whether all `records`, whose types are `kinds`, fit; at C speed, 20 to 40 ns a record, 90
        for a dataclass without slots."""
        if not kinds <= {self.type}:
            return False
        if self.type is tuple:
            width = len(self.fields)
            return countOf(map(len, records), width) == len(records) and not (
                self._holds_checked and problem_in(records)
            )
        return record_class(self.type).first_bad(records) is None

    def misfit(self, records: Sequence[Any]) -> int | None:
        """Return the index of the first record that does not fit, or None when all do."""
        if self.fits(records, set(map(type, records))):
            return None
        for index, record in enumerate(records):
            if not self.fits([record], {type(record)}):
                return index
        return None

    def loss(self, record: Any) -> str:
        """Why a record that is of this type does not fit: what of it would be lost on the way to
        another process, and the remedy. Empty: it is of another type."""
        if type(record) is not self.type:
            return ""
        return problem_in(record) if self.type is tuple else self._class.problem(record)

    @property
    def _class(self) -> RecordClass:
        return record_class(self.type)

    @property
    def _holds_checked(self) -> bool:
        """Whether plain tuples may hold records that are checked."""
        return bool(self.classes) and any(map(may_hold_checked, self.classes))

    def rows(self, records: Sequence[Any]) -> Sequence[Any]:
        """Return records as tuples of their values, for the wire; tuples are unchanged."""
        if self.type is tuple or self._class.is_plain_tuple:
            return records
        return list(map(tuple, map(self._class.values, records)))

    def flat(self, records: Sequence[Any]) -> list[Any]:
        """The values of all records in one list, for the wire."""
        if self.type is tuple:
            return list(chain.from_iterable(records))
        return self._class.flat(records)

    def table(self, rows: Any) -> Any:
        """Records as an Arrow table with the fields as columns; a table is returned as it is."""
        if is_table(rows):
            return rows
        import pyarrow as pa

        columns = zip(*self.rows(rows), strict=True) if len(rows) else ([] for _ in self.fields)
        return pa.table([pa.array(list(column)) for column in columns], names=list(self.fields))

    def rows_of_table(self, table: Any) -> list[Any]:
        """The records of an Arrow table; the inverse of `table`. No constructor runs."""
        return self.build(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def records(self, rows: Sequence[Any]) -> Sequence[Any]:
        """Rows as records: as they are, or built if they came from another worker as sequences."""
        return rows if not rows or type(rows[0]) is self.type else self.build(rows)

    def build(self, rows: Iterable[Sequence[Any]]) -> list[Any]:
        """Rebuild records from sequences of their values, without their constructor; the inverse of
        `rows`."""
        if self.type is tuple:
            return list(map(tuple, rows))
        return self._class.build_all(rows)

    def make(self, rows: Iterable[Sequence[Any]]) -> list[Any]:
        """New records with these values of their fields, which operators have computed. Raises what
        their constructor raises."""
        if self.type is tuple:
            return list(map(tuple, rows))
        return self._class.make_all(rows)


class RecordParts:
    """Reads parts of records, also of plain tuples: the inputs' schemas have their names. The part
    None is the whole record, as field → value."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._names: dict[str | None, tuple[str, ...]] = {}  # of plain tuples, by part

    def check(self, schema: Schema, parts: Iterable[Part | None]) -> None:
        """Check that records of an input have the parts. Raises UnknownField, and RecordMismatch
        for plain tuples that have a field at another position than those of another input, or
        other fields if the whole record is a part. A function takes any record."""
        for part in parts:
            if callable(part):
                continue
            if part is not None:
                schema.check_field(part, self._where)
            if schema.type is tuple:
                self._check_names(schema, part)

    def _check_names(self, schema: Schema, part: str | None) -> None:
        names = self._names.setdefault(part, schema.fields)
        if part is None:
            differs, at = names != schema.fields, ""
        else:
            differs = names.index(part) != schema.fields.index(part)
            at = f", with {part!r} at different positions"
        if differs:
            raise RecordMismatch(
                f"{self._where}: its inputs are plain tuples of different fields, "
                f"({', '.join(names)}) and {schema.name}{at}; emit NamedTuples, or add a sink"
            )

    def getter(self, part: Part | None) -> Callable[[Any], Any]:
        """A function that returns a part of a record. Call it when all inputs are checked."""
        if part is None:
            return self._named
        if callable(part):
            return part
        get_field = attrgetter(part)
        if part not in self._names:
            return get_field
        index = self._names[part].index(part)

        def get(record: Any) -> Any:
            return record[index] if type(record) is tuple else get_field(record)

        return get

    def _named(self, record: Any) -> Mapping[str, Any]:
        if isinstance(record, tuple):
            names = getattr(record, "_fields", self._names.get(None, ()))
            return dict(zip(names, record, strict=True))
        known = record_class(type(record))
        return dict(zip(known.fields, known.values(record), strict=True))
