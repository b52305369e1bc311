"""The formats of objects, JSON lines and Parquet: how records are read from them and written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import NoneType
from typing import Any, Literal, NamedTuple, NewType, get_args, get_origin

from sunshower.arrow.field_kinds import PARQUET
from sunshower.arrow.record_columns import RecordColumns
from sunshower.errors import RecordMismatch, Unserialisable, user_errors
from sunshower.field_types import hints_of, is_record
from sunshower.records import RecordParts, Schema
from sunshower.scalars import json_text
from sunshower.texts import clip, describe, message_of, utf8

_BOM = b"\xef\xbb\xbf"
_NOT_IN_JSON = (bytes, bytearray, memoryview, set, frozenset, complex)
_JSON_KEYS = (str, int, float, bool, NoneType)
_SHOWN_BYTES = 200  # of a record in an error
_SPARK_KEY = b"org.apache.spark.version"  # in the metadata of Spark's files


class ObjectRecord(NamedTuple):
    """A record of an object as it is stored: what `unreadable` of ObjectBatches gets."""

    object: str  #: the name of the object, below the place
    number: int  #: of the line, or of the row, from 1
    value: Any  #: the line as bytes; of Parquet a `pyarrow.Table` with this row


class Misread(NamedTuple):
    """Takes the place of a record that cannot be read."""

    record: ObjectRecord
    reason: str


# ---- reading ------------------------------------------------------------------------------------


def json_records(name: str, data: bytes, read: Callable[[bytes], Any]) -> list[Any]:
    """The records of JSON lines in UTF-8, with or without a byte order mark. `read` makes a record
    of a line, or a list of records."""
    records: list[Any] = []
    for number, line in enumerate(data.removeprefix(_BOM).split(b"\n"), start=1):
        if line.strip():
            try:
                found = read(line)
                records += found if type(found) is list else [found]
            except user_errors() as error:  # a record type may raise anything for wrong values
                records.append(Misread(ObjectRecord(name, number, line), message_of(error)))
    return records


def parquet_records(name: str, data: bytes, read: Callable[[Any], Any]) -> list[Any]:
    """The records of a Parquet file. Raises ArrowException for data that are none."""
    table, int96 = _tables(data)
    records: list[Any] = []
    for number, row in enumerate(_rows(table, int96)):
        try:
            if isinstance(row, Exception):
                raise row
            records.append(read(row))
        except user_errors() as error:  # as above
            stored = ObjectRecord(name, number + 1, table.slice(number, 1))
            records.append(Misread(stored, message_of(error)))
    return records


def _tables(data: bytes) -> tuple[Any, Any]:
    """The columns of a Parquet file; and those with times of the type INT96 again, as nanoseconds.

    INT96 counts nanoseconds in 96 bits. As 64 bits they overflow in 2262, as microseconds the
    nanoseconds are lost; the two are equal if neither has happened. Of Spark such a time is a
    moment, in UTC; of others it has no zone. Raises ValueError for two columns of one name.
    """
    import pyarrow as pa
    from pyarrow import parquet

    source = pa.BufferReader(data)
    file = parquet.ParquetFile(source, coerce_int96_timestamp_unit="us")
    names = file.schema_arrow.names
    if double := [name for place, name in enumerate(names) if name in names[:place]]:
        raise ValueError(f"there are two columns {double[0]!r}")
    leaves = [file.schema.column(place) for place in range(len(file.schema))]
    paths = [leaf.path for leaf in leaves if leaf.physical_type == "INT96"]
    found = [
        name for name in names if any(path == name or path.startswith(f"{name}.") for path in paths)
    ]
    table = file.read()
    if not found:
        return table, table.select([])
    int96 = parquet.ParquetFile(pa.BufferReader(data)).read(columns=found)
    if _SPARK_KEY in (file.metadata.metadata or {}):
        int96 = _cast(int96, _as_moment)
        for name in found:
            place = names.index(name)
            table = table.set_column(place, name, _cast(table.select([name]), _as_moment)[name])
    return table, int96


def _rows(table: Any, int96: Any) -> Iterator[Mapping[str, Any] | Exception]:
    """The rows as values of Python, or why a row has none: halves of the table are tried until it
    is found."""
    import pyarrow as pa

    try:
        yield from _plain(table, int96)
    except Exception as error:  # of zones that are unknown, years after 9999, keys that are lists
        if table.num_rows <= 1:
            yield from [_column_error(table, int96, error)] * table.num_rows
            return
        middle = table.num_rows // 2
        # Not slices: a cast of a slice checks the values outside of it, too.
        for part in (range(middle), range(middle, table.num_rows)):
            places = pa.array(part)
            yield from _rows(table.take(places), int96.take(places) if int96.num_columns else int96)


def _plain(table: Any, int96: Any) -> list[dict[str, Any]]:
    """The rows as values of Python. Times are exact in microseconds; maps are dictionaries, with
    each key once. Raises what pyarrow raises for a value that is not exact, or not of Python."""
    for column in int96.schema:
        micros = table[column.name].cast(column.type, safe=False)
        if not micros.equals(int96[column.name]):
            raise ValueError("it has nanoseconds, which would be lost")
    plain = _cast(table, _as_plain)
    rows: list[dict[str, Any]] = plain.to_pylist()
    for column in plain.schema:
        if convert := _with_dictionaries(column.type):
            for row in rows:
                row[column.name] = convert(row[column.name])
    return rows


def _with_dictionaries(kind: Any) -> Callable[[Any], Any] | None:
    """A function that makes a dictionary of each map in a value of a type; None: it has no maps.
    pyarrow before 20 does not make them."""
    from pyarrow import types

    if types.is_map(kind):
        key, item = (_with_dictionaries(one) or _same for one in (kind.key_type, kind.item_type))
        return lambda pairs: (
            None if pairs is None else _dictionary([(key(k), item(v)) for k, v in pairs])
        )
    if types.is_struct(kind):
        parts = {one.name: convert for one in kind if (convert := _with_dictionaries(one.type))}
        if not parts:
            return None
        return lambda record: (
            record and {name: parts.get(name, _same)(value) for name, value in record.items()}
        )
    if hasattr(kind, "value_field") and (element := _with_dictionaries(kind.value_type)):
        return lambda values: values and [*map(element, values)]
    return None


def _dictionary(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """The map of these pairs. Raises ValueError if a key is there twice, TypeError for a list."""
    whole = dict(pairs)
    if len(whole) < len(pairs):
        raise ValueError("a key is in its map twice")
    return whole


def _same(value: Any) -> Any:
    return value


def _column_error(table: Any, int96: Any, error: Exception) -> Exception:
    """The error of a row, with the name of its column."""
    for name in table.column_names:
        try:
            _plain(table.select([name]), int96.select([name] if name in int96.column_names else []))
        except Exception as of_column:
            return ValueError(f"{name}: {message_of(of_column)}")
    return error


def _cast(table: Any, change: Callable[[Any], Any]) -> Any:
    """A table whose types without parts are changed. Raises ArrowException."""
    import pyarrow as pa

    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = _changed(column.type, change)
        columns[name] = column if kind == column.type else column.cast(kind)
    return pa.table(columns)


def _changed(kind: Any, change: Callable[[Any], Any]) -> Any:
    """The type of a column, or of a part of it."""
    import pyarrow as pa
    from pyarrow import types

    if types.is_dictionary(kind):
        return _changed(kind.value_type, change)
    if types.is_struct(kind):
        return pa.struct([one.with_type(_changed(one.type, change)) for one in kind])
    if types.is_map(kind):
        keys, items = kind.key_field, kind.item_field
        keys, items = (one.with_type(_changed(one.type, change)) for one in (keys, items))
        return (
            kind
            if (keys.type, items.type) == (kind.key_type, kind.item_type)
            else pa.map_(keys, items)
        )
    if hasattr(kind, "value_field"):  # any kind of list
        element = _changed(kind.value_type, change)
        same = element == kind.value_type
        return kind if same else pa.large_list(kind.value_field.with_type(element))
    return change(kind)


def _as_plain(kind: Any) -> Any:
    """The type of the values that Python has: microseconds, and no half numbers."""
    import pyarrow as pa
    from pyarrow import types

    if types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", tz=kind.tz)
    if types.is_time64(kind):
        return pa.time64("us")
    if types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    return pa.float32() if types.is_float16(kind) else kind


def _as_moment(kind: Any) -> Any:
    import pyarrow as pa
    from pyarrow import types

    return pa.timestamp(kind.unit, tz="UTC") if types.is_timestamp(kind) else kind


# ---- writing ------------------------------------------------------------------------------------


class JsonLinesWriter:
    """Encodes rows as JSON lines. Raises TopologyError for a type without field names, and
    RecordMismatch for a field whose type JSON does not have."""

    def __init__(self, schema: Schema, where: str) -> None:
        parts = RecordParts(where)
        parts.check(schema, [None])
        for record_type in filter(is_record, schema.classes):
            for field, annotation in hints_of(record_type).items():
                _check_json(annotation, f"{where}: {record_type.__name__}.{field}")
        self._named = parts.getter(None)

    def encode(self, rows: Sequence[Any]) -> bytes:
        """Rows of a batch. Raises Unserialisable, naming the record, for a value that JSON does not
        have."""
        lines = []
        for row in rows:
            try:
                lines.append(json_text(self._named(row)))
            except (TypeError, ValueError, RecursionError) as error:
                raise _refused(row, error) from error
        return utf8("".join(f"{line}\n" for line in lines))

    def joined(self, parts: Sequence[bytes]) -> bytes:
        """The object with these rows."""
        return b"".join(parts)


class ParquetWriter:
    """Encodes rows as Parquet, with the columns that the annotations of their record type have.
    Raises RecordMismatch for a field whose type has no column type."""

    def __init__(self, schema: Schema, where: str) -> None:
        self._columns = RecordColumns.of(schema.type, where, PARQUET)

    def encode(self, rows: Sequence[Any]) -> Any:
        """Rows of a batch, as a `pyarrow.Table`. Raises Unserialisable, naming the record, for a
        value that its column cannot have."""
        try:
            return self._columns.table(rows)
        except Unserialisable:
            for row in rows:
                try:
                    self._columns.table([row])
                except Unserialisable as error:
                    raise _refused(row, error) from error
            raise

    def joined(self, parts: Sequence[Any]) -> bytes:
        """The object with these rows."""
        import pyarrow as pa
        from pyarrow import parquet

        buffer = pa.BufferOutputStream()
        parquet.write_table(pa.concat_tables(parts), buffer)
        data: bytes = buffer.getvalue().to_pybytes()
        return data


def _check_json(annotation: Any, path: str) -> None:
    """Raise RecordMismatch for a type in an annotation that JSON does not have."""
    origin, args = get_origin(annotation), get_args(annotation)
    kind = annotation.__supertype__ if isinstance(annotation, NewType) else origin or annotation
    if origin is dict and args[0] not in (*_JSON_KEYS, Any) and not _is_text_or_number(args[0]):
        raise RecordMismatch(f"{path} has keys that JSON does not have: use texts or numbers")
    if isinstance(kind, type) and issubclass(kind, _NOT_IN_JSON):
        raise RecordMismatch(
            f"{path} is {kind.__name__}, which JSON does not have: make it a list or a text, or "
            'give format="parquet" for bytes'
        )
    for inner in args if origin is not Literal else ():
        _check_json(inner, path)


def _is_text_or_number(kind: Any) -> bool:
    """Whether it is an Enum such as IntEnum and StrEnum."""
    return isinstance(kind, type) and issubclass(kind, str | int | float)


def _refused(row: Any, error: Exception) -> Unserialisable:
    return Unserialisable(
        clip(f"{describe(row, _SHOWN_BYTES)} cannot be written: {message_of(error)}")
    )
