"""Objects in S3 or another store, and files: read as batches, or written one for each batch."""

from __future__ import annotations

import os
import re
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple

from sunshower.arguments import COUNT, Instance, Values, checked
from sunshower.connectors.file_formats import (
    JsonLinesWriter,
    Misread,
    ObjectRecord,
    ParquetWriter,
    RecordReaders,
    suffix_of,
)
from sunshower.errors import (
    ConfigError,
    IncompleteBatch,
    SourceError,
    StateMismatch,
    StoreForbidden,
    StoreUnreachable,
)
from sunshower.field_types import record_fields
from sunshower.outages import is_unavailable
from sunshower.records import Schema
from sunshower.secret import Secret, address, reveal, without_secrets
from sunshower.state.sqlite import sync_path
from sunshower.topologies.components import Context
from sunshower.topologies.operators.port import Attempt, Emit, Operator, Rows
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


# ---- object folder -------------------------------------------------------------------------------


class ObjectFolder:
    """`place`: a URL that pyarrow opens (`s3://…`, `gs://…`, `abfs://…`, `file:///…`), or the path
    of a folder. Names are relative to it. The client is created when it is used."""

    def __init__(self, place: str | Secret | os.PathLike[str], where: str) -> None:
        PLACE.check(f"{where}: place", place)
        if isinstance(place, os.PathLike) or (isinstance(place, str) and "://" not in place):
            path = Path(place).absolute()
            if path.is_file() or ("*" in path.name and not path.exists()):
                raise ConfigError(f"{where}: {path} is no folder; give the one that has the files")
            place = path.as_uri()
        self._place: Secret = address(place)
        self._client: Any = None

    def __str__(self) -> str:
        return str(self._place).partition("?")[0].rstrip("/")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}  # a client cannot be pickled

    def names(self, below: str = "", *, hidden: bool = False) -> list[str]:
        """The names of all objects, or of those below a folder, in order; without `hidden`, not
        those whose name or folder begins with "." or "_"."""
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
        return sorted(name for name in names if hidden or not _is_hidden(name))

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
_REFUSED = "_of_other_batches"  # in the folder of a batch whose first attempt was refused


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
    writes_outside = True

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
        if attempt.attempt or batch or attempt.txid == 1:  # other batches begin with 1, too
            names, mark = self._folder.names(folder, hidden=True), f"{folder}/{_REFUSED}"
            written = [*filter(self._is_own, names)]
            if written and (not attempt.attempt or mark in names):
                self._folder.write(mark, b"")  # so that no later attempt replaces them
                raise StateMismatch(
                    f"{self._folder}/{written[0]} exists, but no attempt at batch {attempt.txid} "
                    "has written it: it is of other batches. Give an empty folder"
                )
            if mark in names and not any(map(_PART.fullmatch, names)):
                self._folder.delete(mark)  # the others were removed
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
_UNREADABLE = Instance((Callable, NoneType), "a function of an ObjectRecord and a reason")


class _Content(NamedTuple):
    """An object that was read."""

    name: str
    checksum: int
    rows: list[Any]  # records, and a Misread in the place of each that cannot be read
    size: int  # in bytes


class ObjectBatches(PartitionedSpout):
    """Records of `type` from the objects below `place`: JSON lines (`.jsonl`, `.ndjson`, `.json`),
    CSV (`.csv`, `.tsv`) and Parquet (`.parquet`), in the order of their names, read by `shares`
    tasks at most. `place` is a URL that pyarrow opens, such as `s3://bucket/orders`, or the path of
    a folder.

    `ends`: read the objects that exist at the declaration, and then end. `unreadable(record,
    reason)` makes a record of an `ObjectRecord` that cannot be read, or passes it over (None), and
    must always return the same; without it the batch fails. Transactional: a batch that is repeated
    is read again, or fails with IncompleteBatch if its objects were changed or removed. An object
    that is not Parquet, or CSV without a column of a field, raises SourceError.
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
            raise SourceError(f"ObjectBatches: {self._folder} has no JSON lines, CSV and Parquet")
        listed = "\0".join([str(self._folder), str(shares), *self._names])
        self._id = f"{zlib.crc32(listed.encode('utf-8', 'surrogateescape')):08x}"

    def open(self, context: Context) -> None:
        self._clock = context.clock
        self._list_at_s = 0.0
        self._content: _Content | None = None  # the object that was read last
        self._served = ""  # the share that was read last
        self._readers = RecordReaders(self.emits)

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
            limit = min(room.records, max(1, room.bytes * len(content.rows) // size))
            rows = content.rows[row : row + limit]
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
        return [name for name in self._folder.names() if suffix_of(name)]

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
        try:
            return self._readers.records(name, data)
        except SourceError as error:
            raise SourceError(f"{self._folder}/{error}") from error

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
