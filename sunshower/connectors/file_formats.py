"""Formats of files with records: JSON lines, CSV, Parquet, and plain lines.

A file has records one after the other, each at a position: bytes of lines, rows of Parquet. What
cannot be read is a Misread in the place of its record, so one bad line stops no file.
"""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from functools import partial
from io import BytesIO, StringIO
from itertools import accumulate, compress
from pathlib import Path
from types import NoneType
from typing import IO, Any, Literal, NamedTuple, get_args, get_origin

from sunshower.arrow.record_columns import PARQUET, RecordColumns
from sunshower.errors import RecordMismatch, SourceError, Unserialisable, user_errors
from sunshower.json_values import json_text
from sunshower.record_reader import (
    json_reader,
    message_fields,
    record_reader,
    rows_reader,
    text_reader,
)
from sunshower.record_types import hints_of, record_type_of
from sunshower.records import Schema
from sunshower.texts import clip, describe, message_of, utf8
from sunshower.topologies.record_parts import RecordParts
from sunshower.topologies.sources import Line

_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")  # its byte order marks
_NOT_IN_JSON = (bytes, bytearray, memoryview, Set, complex)
_JSON_KEYS = (str, int, float, bool, NoneType)
_SHOWN_BYTES = 200  # of a record in an error
_BLOCK = 1 << 16  # bytes of a block of lines, about
_DELIMITERS = ",;\t|"
_ROW_MAX = 1 << 20  # bytes of a row of CSV with newlines in its values
_QUOTED = re.compile(rb'(?:[^"]++|"")*+"')  # the rest of a value in quotes
_VALUE_MAX = (1 << 31) - 1  # bytes of a value of CSV
_JSON, _CSV, _PARQUET = (".jsonl", ".ndjson", ".json"), (".csv", ".tsv"), (".parquet",)
SUFFIXES = (*_JSON, *_CSV, *_PARQUET)  #: of files with records
_GZIP = ".gz"
_ARROW_KEY = b"ARROW:schema"  # in the metadata of files that Arrow wrote: in Base64
_SPARK_KEY = b"org.apache.spark.version"  # in the metadata of Spark's files


class ObjectRecord(NamedTuple):
    """A record of a file as it is stored: what `unreadable` of ObjectBatches gets."""

    object: str  #: the name of the object, below the place; the path of a file
    number: int  #: of the line, or of the row, from 1
    value: Any  #: the line as bytes; of Parquet a `pyarrow.Table` with this row


class Misread(NamedTuple):
    """Takes the place of a record that cannot be read."""

    record: ObjectRecord
    reason: str


class Block(NamedTuple):
    """Some of the records of a file, one after the other."""

    firsts: list[int]  #: the position of each
    end: int  #: the position behind the last one
    values: list[Any]  #: a record; a list of them, of a JSON array; or a Misread


# ---- lines ---------------------------------------------------------------------------------------


class _Lines(NamedTuple):
    """Some lines of a file, or rows of CSV, which may have several lines."""

    firsts: list[int]
    end: int
    numbers: Sequence[int]  # from 1
    lines: list[bytes]


def json_blocks(
    name: str, file: IO[bytes], read: Callable[[bytes], Any], first: int = 0, *, whole: bool = True
) -> Iterator[Block]:
    """JSON lines in UTF-8, with or without a byte order mark, from a position on. `whole`: a last
    line without a newline is complete. `read` makes a record of a line, or a list of records."""
    for block in _lines(file, first, whole=whole):
        yield _read_each(name, _without_blank(block), partial(_read_json, read))


def _read_json(read: Callable[[bytes], Any], line: bytes) -> Any:
    if line.strip() in (b"[", b"{"):
        raise ValueError("its value goes on in the next line: write each record in one line")
    return read(line.removesuffix(b"\n"))


def line_blocks(
    name: str, file: IO[bytes], encoding: str, first: int = 0, *, whole: bool = True
) -> Iterator[Block]:
    """The lines of a text, also blank ones, as Line."""
    for block in _lines(file, first, whole=whole):
        yield _read_each(name, block, lambda line: Line(_text(line, encoding)))


def _lines(file: IO[bytes], first: int, *, whole: bool) -> Iterator[_Lines]:
    """The lines of a file from a position on."""
    number = _newlines(file, first) + 1
    ends = False
    while not ends and (lines := file.readlines(_BLOCK)):
        if not (whole or lines[-1].endswith(b"\n")):
            lines.pop()
            ends = True  # the rest of the line may be there by now
        *firsts, end = accumulate(map(len, lines), initial=first)
        if lines:
            if not first:
                lines[0] = lines[0].removeprefix(_BOM)
            yield _Lines(firsts, end, range(number, number + len(lines)), lines)
        number, first = number + len(lines), end


def _newlines(file: IO[bytes], end: int) -> int:
    """Read a file up to a position. Returns how many lines that are."""
    count = 0
    while end > 0 and (block := file.read(min(end, _BLOCK))):
        count, end = count + block.count(b"\n"), end - len(block)
    return count


def _without_blank(block: _Lines) -> _Lines:
    filled = [bool(line.strip()) for line in block.lines]
    if all(filled):
        return block
    firsts, numbers = compress(block.firsts, filled), compress(block.numbers, filled)
    return _Lines([*firsts], block.end, [*numbers], [*compress(block.lines, filled)])


def _content(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _text(line: bytes, encoding: str) -> str:
    try:
        return _content(line).decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{error}; convert the file, or give RecordFiles or FollowedFiles its encoding="
        ) from None


def _read_each(name: str, block: _Lines, read: Callable[[bytes], Any]) -> Block:
    values: list[Any] = []
    for number, line in zip(block.numbers, block.lines, strict=True):
        try:
            values.append(read(line))
        except user_errors() as error:  # a record type may raise anything for wrong values
            values.append(Misread(ObjectRecord(name, number, _content(line)), message_of(error)))
    return Block(block.firsts, block.end, values)


# ---- CSV -----------------------------------------------------------------------------------------


def csv_blocks(
    name: str,
    file: IO[bytes],
    kind: type[Any],
    encoding: str = "utf-8",
    first: int = 0,
    *,
    whole: bool = True,
) -> Iterator[Block]:
    """The rows of a CSV file, whose first line has the names of the columns (RFC 4180). The
    separator is that of `,` `;` tab and `|` by which the names are fields of the record type.
    Raises SourceError for a field without a column."""
    csv.field_size_limit(_VALUE_MAX)  # of the process; that of the library is 128 KiB
    header, end = b"", 0
    while not header.removeprefix(_BOM).strip():
        if not (header := file.readline()) or not (whole or header.endswith(b"\n")):
            return
        end += len(header)
    columns, delimiter = _columns(name, header.removeprefix(_BOM), kind, encoding)
    rows_of, read_row = rows_reader(kind, columns), text_reader(kind)

    def texts(rows: str) -> Iterator[list[str]]:
        return csv.reader(StringIO(rows, newline=""), delimiter=delimiter, strict=True)

    def record(row: bytes) -> Any:
        values, *more = texts(_text(row, encoding))
        if more:
            raise ValueError(
                "it has a carriage return outside of quotes: end each row with a newline"
            )
        if len(values) != len(columns):
            what = f"it has {len(values)} values, and the first line {len(columns)} columns"
            raise ValueError(what)
        return read_row(dict(zip(columns, values, strict=True)))

    file.seek(0)
    mark = delimiter.encode()
    for lines in _joined(_lines(file, max(first, end), whole=whole), mark, whole=whole):
        block = _without_blank(lines)
        try:
            text = b"".join(block.lines).decode(encoding)
            if len(rows := [*texts(text)]) != len(block.lines):
                raise ValueError("a row has several lines")
            records = rows_of(rows)
        except user_errors():  # some row is wrong, or has newlines: look at each
            yield _read_each(name, block, record)
        else:
            yield Block(block.firsts, block.end, records)


def _columns(name: str, header: bytes, kind: type[Any], encoding: str) -> tuple[list[str], str]:
    """The names of the columns, and the separator."""
    fields = message_fields(kind)
    if header.startswith(_UTF16):
        raise SourceError(f"{name} is in UTF-16: convert it to UTF-8")
    text = header.decode(encoding, "replace").strip("\r\n")
    if "\r" in text:
        raise SourceError(f"{name}: its lines end with carriage returns: end them with newlines")
    forms = [([column.strip() for column in _split(text, mark)], mark) for mark in _DELIMITERS]
    columns, delimiter = max(forms, key=lambda form: len(fields.keys() & {*form[0]}))
    missing = [
        field for field, (_, default) in fields.items() if field not in columns and not default
    ]
    double = [
        name for place, name in enumerate(columns) if name in fields and name in columns[:place]
    ]
    if not missing and not double:
        return columns, delimiter
    what = f"has no column {missing[0]!r}" if missing else f"has the column {double[0]!r} twice"
    raise SourceError(
        f"{name}: its first line {what}; it has {', '.join(columns)[:300]}. Name the columns in "
        f"the first line as the fields of {kind.__name__}, or the fields as the columns"
    )


def _split(text: str, delimiter: str) -> list[str]:
    return next(csv.reader([text], delimiter=delimiter), [])


def _ends_in_quotes(line: bytes, mark: bytes, *, begins_in: bool) -> bool:
    """Whether a value in quotes goes on behind a line. Quotes within a value are only characters,
    as in `5" disk`. `mark`: the separator; `begins_in`: the line begins within such a value."""
    at, is_open = 0, begins_in
    if not is_open and line.startswith(b'"'):
        at, is_open = 1, True
    while True:
        if is_open:
            if (rest := _QUOTED.match(line, at)) is None:
                return True
            at = rest.end()
        if (at := line.find(mark, at) + 1) == 0:
            return False
        is_open = line.startswith(b'"', at)
        at += is_open


def _joined(blocks: Iterable[_Lines], mark: bytes, *, whole: bool) -> Iterator[_Lines]:
    """Join lines to rows: a value in quotes may have newlines. Where no end of the quotes follows,
    each line is a row."""
    waiting: list[tuple[int, int, bytes]] = []  # position, number and bytes of lines
    size, is_open, end = 0, False, 0
    for block in blocks:
        if not waiting and not any(line.count(b'"') % 2 for line in block.lines):
            yield block
            continue
        rows: list[tuple[int, int, bytes]] = []
        for line in zip(block.firsts, block.numbers, block.lines, strict=True):
            waiting.append(line)
            is_open = _ends_in_quotes(line[2], mark, begins_in=is_open)
            size += len(line[2])
            if not is_open:
                rows.append((*waiting[0][:2], b"".join(part for _, _, part in waiting)))
            elif size > _ROW_MAX:
                rows += waiting
            else:
                continue
            waiting, size, is_open = [], 0, False
        end = block.end
        if rows:
            firsts, numbers, lines = map(list, zip(*rows, strict=True))
            yield _Lines(firsts, waiting[0][0] if waiting else end, numbers, lines)
    if waiting and whole:
        firsts, numbers, lines = map(list, zip(*waiting, strict=True))
        yield _Lines(firsts, end, numbers, lines)


# ---- Parquet -------------------------------------------------------------------------------------


def parquet_blocks(
    name: str, file: IO[bytes], read: Callable[[Any], Any], first: int = 0
) -> Iterator[Block]:
    """The rows of a Parquet file, from a position on. Raises ArrowException for bytes that are
    none, ValueError for two columns of one name."""
    place = 0
    for count, group in _row_groups(file):
        if place + count <= first:
            place += count
            continue
        table, int96 = group()
        values: list[Any] = []
        for number, row in enumerate(_rows(table, int96)):
            try:
                if isinstance(row, Exception):
                    raise row
                values.append(read(row))
            except user_errors() as error:  # as above
                stored = ObjectRecord(name, place + number + 1, table.slice(number, 1))
                values.append(Misread(stored, message_of(error)))
        firsts = [*range(max(place, first), place + count)]
        yield Block(firsts, place + count, values[len(values) - len(firsts) :])
        place += count


def _row_groups(source: IO[bytes]) -> Iterator[tuple[int, Callable[[], tuple[Any, Any]]]]:
    """The groups of rows of a Parquet file: how many each has, and a function that reads its
    columns; and those with times of the type INT96 again, as nanoseconds.

    INT96 counts nanoseconds in 96 bits. As 64 bits they overflow in 2262, as microseconds the
    nanoseconds are lost; the two are equal if neither has happened. Of Spark such a time is a
    moment, in UTC; of others it has no zone. Raises ValueError for two columns of one name.
    """
    from pyarrow import parquet

    file = parquet.ParquetFile(source, coerce_int96_timestamp_unit="us")
    names = file.schema_arrow.names
    if double := [name for place, name in enumerate(names) if name in names[:place]]:
        raise ValueError(f"there are two columns {double[0]!r}")
    leaves = [file.schema.column(place) for place in range(len(file.schema))]
    paths = [leaf.path for leaf in leaves if leaf.physical_type == "INT96"]
    int96_columns = [
        name for name in names if any(path == name or path.startswith(f"{name}.") for path in paths)
    ]
    of_int96 = parquet.ParquetFile(source) if int96_columns else None

    def columns(group: int) -> tuple[Any, Any]:
        table = _with_types_in_maps(file.read_row_group(group), file, int96_columns)
        if of_int96 is None:
            return table, table.select([])
        int96 = of_int96.read_row_group(group, columns=int96_columns)
        if _SPARK_KEY in (file.metadata.metadata or {}):
            int96 = _cast(int96, _as_moment)
            for name in int96_columns:
                place = names.index(name)
                table = table.set_column(place, name, _cast(table.select([name]), _as_moment)[name])
        return table, int96

    for group in range(file.num_row_groups):
        yield file.metadata.row_group(group).num_rows, partial(columns, group)


def _with_types_in_maps(table: Any, file: Any, int96_columns: Sequence[str]) -> Any:
    """A table whose columns with maps have the types that Arrow wrote: pyarrow before 24 reads
    durations in a map as numbers, and UUIDs as bytes."""
    import pyarrow as pa

    if (written := (file.metadata.metadata or {}).get(_ARROW_KEY)) is None:
        return table
    schema = pa.ipc.read_schema(pa.BufferReader(b64decode(written)))
    for place, field in enumerate(table.schema):
        if field.name in int96_columns or not _with_dictionaries(field.type):
            continue
        kind = schema.field(field.name).type if field.name in schema.names else field.type
        if kind != field.type:
            try:
                table = table.set_column(place, field.name, table[field.name].cast(kind))
            except pa.ArrowException:  # for example a dictionary in a map: its values are the same
                continue
    return table


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
        key, item = (_with_dictionaries(part) or _same for part in (kind.key_type, kind.item_type))
        return lambda pairs: (
            None if pairs is None else _dictionary([(key(k), item(v)) for k, v in pairs])
        )
    if types.is_struct(kind):
        parts = {
            field.name: convert for field in kind if (convert := _with_dictionaries(field.type))
        }
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
    import pyarrow as pa
    from pyarrow import types

    if types.is_dictionary(kind):
        return _changed(kind.value_type, change)
    if types.is_struct(kind):
        return pa.struct([field.with_type(_changed(field.type, change)) for field in kind])
    if types.is_map(kind):
        keys, items = kind.key_field, kind.item_field
        keys, items = (part.with_type(_changed(part.type, change)) for part in (keys, items))
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


# ---- by suffix -----------------------------------------------------------------------------------


def suffix_of(name: str) -> str:
    """The suffix that says how a file is read; empty: none does. `.gz` behind it is left out."""
    name = name.lower().removesuffix(_GZIP)
    return next((suffix for suffix in SUFFIXES if name.endswith(suffix)), "")


class RecordReaders:
    """Reads the records of a type from files, by the suffix of their names: `.jsonl`, `.ndjson` and
    `.json` (JSON lines), `.csv` and `.tsv`, `.parquet`; with `.gz` behind it, compressed. Records
    of the type Line are the lines of any file."""

    def __init__(self, kind: type[Any], encoding: str = "utf-8") -> None:
        self._kind, self._encoding = kind, encoding
        if kind is not Line:
            self._json, self._row = json_reader(kind), record_reader(kind)

    def blocks(self, path: str, first: int = 0, *, whole: bool = True) -> Iterator[Block]:
        """What a file has from a position on. Raises SourceError for a file that cannot be read."""
        try:
            with ExitStack() as stack:
                file: Any = stack.enter_context(Path(path).open("rb"))
                file = stack.enter_context(gzip.open(file)) if is_compressed(path) else file
                yield from self.of_file(path, file, first, whole=whole)
        except (OSError, EOFError, zlib.error) as error:
            raise _no_file(path, error) from error

    def records(self, name: str, data: bytes) -> list[Any]:
        """The records of a file in memory, and a Misread for each that cannot be read. Raises as
        `blocks`."""
        try:
            data = gzip.decompress(data) if is_compressed(name) else data
        except (OSError, EOFError, zlib.error) as error:
            raise _no_file(name, error) from error
        return records_of(self.of_file(name, BytesIO(data)))

    def of_file(
        self, name: str, file: IO[bytes], first: int = 0, *, whole: bool = True
    ) -> Iterator[Block]:
        """As `blocks`, of a file that is open at its beginning."""
        suffix, kind, encoding = suffix_of(name), self._kind, self._encoding
        if kind is Line:
            yield from line_blocks(name, file, encoding, first, whole=whole)
        elif suffix in _CSV:
            yield from csv_blocks(name, file, kind, encoding, first, whole=whole)
        elif suffix in _PARQUET:
            try:
                yield from parquet_blocks(name, file, self._row, first)
            except Exception as error:  # of the library, for bytes that are no Parquet
                raise _no_file(name, error) from error
        else:
            yield from json_blocks(name, file, self._json, first, whole=whole)


def _no_file(name: str, error: Exception) -> SourceError:
    return SourceError(
        f"{name} cannot be read: {message_of(error).removesuffix('.')}; correct the file, or "
        "remove it before it is read"
    )


def is_compressed(path: str) -> bool:
    """Whether a file is compressed, by its suffix."""
    return path.lower().endswith(_GZIP)


def records_of(blocks: Iterable[Block]) -> list[Any]:
    """The records, and a Misread for each that cannot be read."""
    records: list[Any] = []
    for block in blocks:
        if list in {*map(type, block.values)}:
            for value in block.values:
                records += value if type(value) is list else [value]
        else:
            records += block.values
    return records


def json_records(name: str, data: bytes, read: Callable[[bytes], Any]) -> list[Any]:
    """As `records_of`, of JSON lines."""
    return records_of(json_blocks(name, BytesIO(data), read))


def parquet_records(name: str, data: bytes, read: Callable[[Any], Any]) -> list[Any]:
    """As `records_of`, of a Parquet file. Raises ArrowException for data that are none."""
    return records_of(parquet_blocks(name, BytesIO(data), read))


# ---- writing ------------------------------------------------------------------------------------


class JsonLinesWriter:
    """Encodes rows as JSON lines. Raises TopologyError for a type without field names, and
    RecordMismatch for a field whose type JSON does not have."""

    def __init__(self, schema: Schema, where: str) -> None:
        parts = RecordParts(where)
        parts.check(schema, [None])
        for record_type in filter(record_type_of, (schema.type, *schema.classes)):
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
        import pyarrow as pa
        from pyarrow import parquet

        buffer = pa.BufferOutputStream()
        parquet.write_table(pa.concat_tables(parts), buffer)
        data: bytes = buffer.getvalue().to_pybytes()
        return data


def _check_json(annotation: Any, path: str) -> None:
    """Raise RecordMismatch for a type in an annotation that JSON does not have."""
    origin, args = get_origin(annotation), get_args(annotation)
    kind = origin or annotation
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
