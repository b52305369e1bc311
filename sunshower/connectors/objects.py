"""Objects in S3 or another store, and files: read as batches, or written one for each batch."""

from __future__ import annotations

import os
import re
import zlib
from base64 import b64decode
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple, NewType, get_args, get_origin

from sunshower.arguments import COUNT, Instance, Values, checked
from sunshower.arrow.record_columns import PARQUET, RecordColumns
from sunshower.errors import (
    ConfigError,
    IncompleteBatch,
    RecordMismatch,
    SourceError,
    StateMismatch,
    StoreForbidden,
    StoreUnreachable,
    Unserialisable,
    user_errors,
)
from sunshower.field_types import record_fields
from sunshower.json_values import json_text
from sunshower.outages import is_unavailable
from sunshower.record_reader import json_reader, record_reader
from sunshower.record_types import hints_of, record_type_of
from sunshower.records import Schema
from sunshower.secret import Secret, address, reveal, without_secrets
from sunshower.state.sqlite import sync_path
from sunshower.texts import clip, describe, message_of, utf8
from sunshower.topologies.components import Context
from sunshower.topologies.operators.port import Attempt, Emit, Operator, Rows
from sunshower.topologies.record_parts import RecordParts
from sunshower.trident.declaration.streams import BatchStream
from sunshower.trident.spouts.bounds import Bounds, Room
from sunshower.trident.spouts.port import PartitionedSpout

PLACE = Instance(
    (str, Secret, os.PathLike), 'a folder, such as "s3://bucket/orders"', False, is_secret=True
)
# Parts of the messages of S3's client that say that the store is away.
_AWAY = (
    *("NETWORK_CONNECTION", "SERVICE_UNAVAILABLE", "INTERNAL_FAILURE", "SLOW_DOWN", "THROTTLING"),
    *("REQUEST_TIMEOUT", "REQUEST_TIME_TOO_SKEWED", "curlCode", "HTTP status 5"),
)


# ---- object formats ------------------------------------------------------------------------------

_BOM = b"\xef\xbb\xbf"
_NOT_IN_JSON = (bytes, bytearray, memoryview, set, frozenset, complex)
_JSON_KEYS = (str, int, float, bool, NoneType)
_SHOWN_BYTES = 200  # of a record in an error
_ARROW_KEY = b"ARROW:schema"  # in the metadata of files that Arrow wrote: in Base64
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
                record = read(line)
                records += record if type(record) is list else [record]
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
    int96_columns = [
        name for name in names if any(path == name or path.startswith(f"{name}.") for path in paths)
    ]
    table = _with_types_in_maps(file.read(), file, int96_columns)
    if not int96_columns:
        return table, table.select([])
    int96 = parquet.ParquetFile(pa.BufferReader(data)).read(columns=int96_columns)
    if _SPARK_KEY in (file.metadata.metadata or {}):
        int96 = _cast(int96, _as_moment)
        for name in int96_columns:
            place = names.index(name)
            table = table.set_column(place, name, _cast(table.select([name]), _as_moment)[name])
    return table, int96


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


# ---- object folder -------------------------------------------------------------------------------


class ObjectFolder:
    """`place`: a URL that pyarrow opens (`s3://…`, `gs://…`, `abfs://…`, `file:///…`), or the path
    of a folder. Names are relative to it. The client is created when it is used."""

    def __init__(self, place: str | Secret | os.PathLike[str], where: str) -> None:
        PLACE.check(f"{where}: place", place)
        if isinstance(place, os.PathLike) or (isinstance(place, str) and "://" not in place):
            place = Path(place).absolute().as_uri()
        self._place: Secret = address(place)
        self._client: Any = None

    def __str__(self) -> str:
        return str(self._place).partition("?")[0].rstrip("/")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}  # a client cannot be pickled

    def names(self, below: str = "") -> list[str]:
        """The names of all objects, or of those below a folder, in order. Hidden ones, whose name
        or folder begins with "." or "_", are left out."""
        from pyarrow.fs import FileSelector, FileType

        with self._errors():
            client, root = self._opened()
            path = f"{root}/{below}" if below else root
            selected = FileSelector(path, allow_not_found=True, recursive=True)
            names = [
                info.path[len(root) + 1 :]
                for info in client.get_file_info(selected)
                if info.type == FileType.File
            ]
        return sorted(name for name in names if not _is_hidden(name))

    def read(self, name: str) -> bytes | None:
        """The content of an object; None if it does not exist."""
        with self._errors():
            client, root = self._opened()
            try:
                with client.open_input_stream(f"{root}/{name}", compression=None) as stream:
                    data: bytes = stream.read()
            except FileNotFoundError:
                return None
        return data

    def write(self, name: str, data: bytes) -> None:
        """Create or replace an object. It is never there in part. A file is on the disk when this
        returns."""
        with self._errors():
            client, root = self._opened()
            path = f"{root}/{name}"
            if client.type_name == "local":
                _write_file(Path(root or "/"), Path(path), data)
                return
            with client.open_output_stream(path) as stream:
                stream.write(data)

    def delete(self, name: str) -> None:
        """Remove an object, if it exists. A file is removed from the disk when this returns."""
        with self._errors():
            client, root = self._opened()
            path = f"{root}/{name}"
            try:
                client.delete_file(path)
            except FileNotFoundError:
                return
            if client.type_name == "local":
                sync_path(Path(path).parent)

    def _opened(self) -> tuple[Any, str]:
        from pyarrow import ArrowInvalid
        from pyarrow.fs import FileSystem

        if self._client is None:
            try:
                client, root = FileSystem.from_uri(reveal(self._place))
            except (ArrowInvalid, TypeError) as error:
                raise ConfigError(
                    f'{self} is not a folder that pyarrow opens, such as "s3://bucket/orders": '
                    f"{without_secrets(str(error))}"
                ) from None
            self._client = client, root.rstrip("/")
        opened: tuple[Any, str] = self._client
        return opened

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Convert errors of the client. Raises StoreUnreachable, StoreForbidden: what the store
        refuses, such as a bucket that does not exist, is refused for every record."""
        try:
            yield
        except OSError as error:
            why = without_secrets(str(error))
            if is_unavailable(error) or any(part in why for part in _AWAY):
                raise StoreUnreachable(f"{self} cannot be used: {why}") from error
            raise StoreForbidden(f"{self} refuses that: {why}") from error


def _write_file(root: Path, path: Path, data: bytes) -> None:
    """Write a file below `root` under a hidden name, and rename it. Sync it, its folder, and all
    folders up to the lowest one that was there before. Raises OSError."""
    existing = next(folder for folder in (root, *root.parents) if folder.exists())
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}")
    draft.write_bytes(data)
    sync_path(draft)
    draft.replace(path)
    for folder in path.parents:
        sync_path(folder)
        if folder == existing:
            return


def _is_hidden(name: str) -> bool:
    return any(part[:1] in {".", "_"} for part in name.split("/"))


# ---- object files --------------------------------------------------------------------------------
# ObjectFiles: writes the rows of each batch as objects in S3, which a repeated batch replaces.
#
# <place>/batch=000000000007/part-0002.jsonl      the rows that task 2 had of batch 7

_FORMAT = Values(words={"jsonl": "jsonl", "parquet": "parquet"})
_WRITERS = {"jsonl": JsonLinesWriter, "parquet": ParquetWriter}
_PART = re.compile(r"batch=\d+/part-(\d+)\.\w+")


class ObjectFiles:
    """What `stream.apply(ObjectFiles("s3://bucket/totals"))` writes: an object for each batch and
    task, of JSON lines or Parquet. `place` is a URL that pyarrow opens, or the path of a folder.

    A batch that is repeated replaces its objects. The batches must begin with an empty folder: else
    a first attempt raises StateMismatch. `stream.apply` raises RecordMismatch for a type that has
    no column, or no text in JSON; a value that its column cannot have fails its batch
    (Unserialisable).
    """

    def __init__(
        self,
        place: str | Secret | os.PathLike[str],
        *,
        format: str = "jsonl",  # noqa: A002
    ) -> None:
        _FORMAT.check("ObjectFiles: format", format)
        self._folder, self._format = ObjectFolder(place, "ObjectFiles"), format

    def __call__(self, stream: BatchStream[Any]) -> BatchStream[Any]:
        return stream.operate(_Writer(self._folder, self._format, stream.schema), fields=())


class _Writer(Operator):
    """The operator: it collects the rows of a batch, and writes them when the batch commits."""

    commits = True

    def __init__(self, folder: ObjectFolder, kind: str, schema: Schema) -> None:
        self._folder, self._kind = folder, kind
        self._writer: Any = _WRITERS[kind](schema, f"ObjectFiles({folder})")

    def prepare(self, context: Context) -> None:
        self._index, self._tasks = context.index, context.parallelism

    def start(self, attempt: Attempt) -> list[Any]:
        return []

    def process(self, batch: list[Any], source: int, rows: Rows, emit: Emit) -> None:
        if rows:
            batch.append(self._writer.encode(rows))

    def finish(self, batch: list[Any], attempt: Attempt, emit: Emit) -> None:
        """Write the object. Raises StoreUnreachable, StoreError and StateMismatch."""
        folder = f"batch={attempt.txid:012}"
        name = f"{folder}/part-{self._index:04}.{self._kind}"
        if attempt.attempt or batch:
            written = [*filter(self._is_own, self._folder.names(folder))]
            if written and not attempt.attempt:
                raise StateMismatch(
                    f"{self._folder}/{written[0]} exists, but no attempt at batch {attempt.txid} "
                    "has written it: it is of other batches. Give an empty folder"
                )
            if batch:
                self._folder.write(name, self._writer.joined(batch))
            for object_name in written:
                if object_name != name or not batch:
                    self._folder.delete(object_name)

    def _is_own(self, name: str) -> bool:
        """Whether this task replaces an object: also those of tasks that there are no more."""
        match = _PART.fullmatch(name)
        return match is not None and int(match[1]) % self._tasks == self._index


# ---- object batches ------------------------------------------------------------------------------
# ObjectBatches: batches of records from the objects of a folder in S3, in the order of names.
#
# A share of the names is a partition. Its metadata are
# {"of": "5c…", "pieces": [["2026/01.jsonl", 9073…, 0, 118]], "next": ["2026/01.jsonl", 118, 9073…]}
#       = rows [0, 118) of an object with this checksum; the next batch begins at its row 118
# The row is -1 when all of the object is read.

_LIST_S = 2.0  # between two listings of the folder
_DONE = -1  # instead of the next row: all of the object is read
_JSON, _PARQUET = (".jsonl", ".ndjson", ".json"), (".parquet",)
_UNREADABLE = Instance((Callable, NoneType), "a function of an ObjectRecord and a reason")


class _Content(NamedTuple):
    """An object that was read."""

    name: str
    checksum: int
    rows: list[Any]  # records, and a Misread in the place of each that cannot be read
    size: int  # in bytes


class ObjectBatches(PartitionedSpout):
    """Records of `type` from the objects below `place`: JSON lines (`.jsonl`, `.ndjson`, `.json`)
    and Parquet (`.parquet`), in the order of their names, read by `shares` tasks at most. `place`
    is a URL that pyarrow opens, such as `s3://bucket/orders`, or the path of a folder.

    `ends`: read the objects that exist at the declaration, and then end. `unreadable(record,
    reason)` makes a record of an `ObjectRecord` that cannot be read, or passes it over (None), and
    must always return the same; without it the batch fails. Transactional: a batch that is repeated
    is read again, or fails with IncompleteBatch if its objects were changed or removed. An object
    that is not Parquet raises SourceError.
    """

    @checked(place=PLACE, shares=COUNT, unreadable=_UNREADABLE)
    def __init__(
        self,
        place: str | Secret | os.PathLike[str],
        *,
        type: type[Any],
        bounds: Bounds | None = None,
        shares: int = 8,
        ends: bool = False,
        unreadable: Callable[[ObjectRecord, str], Any] | None = None,
    ) -> None:
        record_fields(type)
        self.emits = type
        self.bounds = bounds or Bounds()
        self._folder = ObjectFolder(place, "ObjectBatches")
        self._shares, self._ends, self._unreadable = shares, ends, unreadable
        self._names: list[str] = self._list() if ends else []
        if ends and not self._names:
            raise SourceError(f"ObjectBatches: {self._folder} has no .jsonl and no .parquet")
        listed = "\0".join([str(self._folder), str(shares), *self._names])
        self._id = f"{zlib.crc32(listed.encode('utf-8', 'surrogateescape')):08x}"

    def open(self, context: Context) -> None:
        self._clock = context.clock
        self._list_at_s = 0.0
        self._content: _Content | None = None  # the object that was read last
        self._served = ""  # the share that was read last
        self._read, self._read_json = record_reader(self.emits), json_reader(self.emits)

    def partitions(self) -> Sequence[str]:
        shares = range(self._shares)
        used = {_share(name, self._shares) for name in self._names} if self._ends else {*shares}
        return [str(share) for share in shares if share in used]

    def emit_all_new(self, last: Mapping[str, Any], room: Room) -> dict[str, Any]:
        """Begin with the share after the one that was read last, so that each has its turn."""
        shares = [*last]
        first = shares.index(self._served) + 1 if self._served in last else 0
        turns = [*shares[first:], *shares[:first]]
        metadata = super().emit_all_new({share: last[share] for share in turns}, room)
        self._served = next(
            (share for share in reversed(turns) if share in room.filled), self._served
        )
        return metadata

    def emit_new(self, partition: str, last: Any, room: Room) -> Any:
        self._check(last)
        name, row, checksum = last["next"] if last else ("", _DONE, 0)
        pieces: list[list[Any]] = []
        while not room.full:
            if row == _DONE:
                if (following := self._following(partition, name)) is None:
                    break
                if (content := self._find_object(following)) is None:  # removed since the listing
                    if self._ends:
                        name = following  # which may be the end
                    else:
                        self._names.remove(following)  # it may appear again
                    continue
                name, row = following, 0
            else:
                content = self._open_object(name, checksum)
            checksum = content.checksum
            size = max(1, content.size)
            most = min(room.records, max(1, room.bytes * len(content.rows) // size))
            rows = content.rows[row : row + most]
            if rows:
                self._emit(rows, room, content.size * len(rows) // len(content.rows))
                pieces.append([name, checksum, row, row + len(rows)])
            row += len(rows)
            if row >= len(content.rows):
                row = _DONE
        if not name or (last and [name, row] == last["next"][:2]):
            return last
        return {"of": self._id, "pieces": pieces, "next": [name, row, checksum]}

    def emit_again(self, partition: str, metadata: Any, room: Room) -> None:
        self._check(metadata)
        for name, checksum, first, end in metadata["pieces"]:
            content = self._open_object(name, checksum)
            self._emit(content.rows[first:end], room)

    def is_end(self, partition: str, metadata: Any) -> bool:
        if not self._ends or not metadata:
            return False
        last = [name for name in self._names if str(_share(name, self._shares)) == partition][-1]
        ended: bool = metadata["next"][:2] == [last, _DONE]
        return ended

    def _following(self, partition: str, name: str) -> str | None:
        """The name of the share's next object; None if there is none at the moment."""
        if (following := self._after(partition, name)) is None and not self._ends:
            if self._clock.now() < self._list_at_s:
                return None
            self._names = self._list()
            self._list_at_s = self._clock.now() + _LIST_S
            following = self._after(partition, name)
        return following

    def _after(self, partition: str, name: str) -> str | None:
        names = self._names[bisect_right(self._names, name) :]
        of_share = (
            following for following in names if str(_share(following, self._shares)) == partition
        )
        return next(of_share, None)

    def _list(self) -> list[str]:
        return [name for name in self._folder.names() if name.endswith((*_JSON, *_PARQUET))]

    def _open_object(self, name: str, checksum: int) -> _Content:
        """The object of which rows were read before. Raises IncompleteBatch if it has changed."""
        content = self._content
        if content is None or (content.name, content.checksum) != (name, checksum):
            content = self._find_object(name, checksum)
        if content is None:
            raise IncompleteBatch(
                f"{self._folder}/{name} was removed or changed after a batch of it was read; "
                "objects must stay as they are until their batches are committed"
            )
        return content

    def _find_object(self, name: str, checksum: int | None = None) -> _Content | None:
        """Read an object; None if it does not exist, or has another checksum than this one."""
        data = self._folder.read(name)
        if data is None or checksum not in (None, zlib.crc32(data)):
            return None
        self._content = _Content(name, zlib.crc32(data), self._decoded(name, data), len(data))
        return self._content

    def _decoded(self, name: str, data: bytes) -> list[Any]:
        """The records of an object, and a Misread for each that cannot be read."""
        if not name.endswith(_PARQUET):
            return json_records(name, data, self._read_json)
        try:
            return parquet_records(name, data, self._read)
        except Exception as error:  # of the library, for bytes that are no Parquet
            raise SourceError(
                f"{self._folder}/{name} cannot be read: {message_of(error)}; correct the object, "
                "or remove it before it is read"
            ) from error

    def _emit(self, rows: Sequence[Any], room: Room, read_bytes: int = 0) -> None:
        """Emit records, and what `unreadable` makes of the others; without it, refuse these."""
        records: list[Any] = []
        for row in rows:
            if type(row) is not Misread:
                records.append(row)
            elif self._unreadable is None:
                room.refuse(self._refusal(row))
            elif (record := self._unreadable(*row)) is not None:
                records.append(record)
        room.emit(records, read_bytes)

    def _refusal(self, row: Misread) -> str:
        name, number, value = row.record
        unit = "line" if type(value) is bytes else "row"
        return (
            f"{self._folder}/{name}, {unit} {number} cannot be read: {row.reason}. Give "
            "unreadable=…, which makes a record of it or passes it over, or correct the object"
        )

    def _check(self, metadata: Any) -> None:
        if metadata and metadata["of"] != self._id:
            raise StateMismatch(
                f"the batches in the store are of another folder, or of other shares, than "
                f"{self._folder} in {self._shares}: give the same ones as before, or the spout "
                "another id"
            )


def _share(name: str, shares: int) -> int:
    return zlib.crc32(name.encode("utf-8", "surrogateescape")) % shares
