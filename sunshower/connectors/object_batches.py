"""ObjectBatches: batches of records from the objects of a folder in S3, in the order of names.

A share of the names is a partition. Its metadata are
{"of": "5c…", "pieces": [["2026/01.jsonl", 9073…, 0, 118]], "next": ["2026/01.jsonl", 118, 9073…]}
        = rows [0, 118) of an object with this checksum; the next batch begins at its row 118
The row is -1 when all of the object is read.
"""

from __future__ import annotations

import os
import zlib
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any, NamedTuple

from sunshower.arguments import COUNT, Instance, checked
from sunshower.connectors.object_folder import PLACE, ObjectFolder
from sunshower.connectors.object_formats import (
    Misread,
    ObjectRecord,
    json_records,
    parquet_records,
)
from sunshower.errors import IncompleteBatch, SourceError, StateMismatch
from sunshower.field_types import record_fields
from sunshower.record_reader import json_reader, record_reader
from sunshower.secret import Secret
from sunshower.texts import message_of
from sunshower.topologies.components import Context
from sunshower.trident.spouts.bounds import Bounds, Room
from sunshower.trident.spouts.partitioned import PartitionedSpout

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
    and Parquet (`.parquet`); other objects are left out. `place` is a URL that pyarrow opens, such
    as `s3://bucket/orders`, or the path of a folder.

    Objects are read whole, in the order of their names, by `shares` tasks at most. An object that
    appears later is read if its name follows those that were read before: let names begin with a
    date or a number. `ends`: read the objects that exist at the declaration, and then end.

    Transactional: the position is in the store of the batches, and a batch that is repeated is read
    again, or fails with IncompleteBatch if its objects were changed or removed. While the store is
    away batches wait. An object that is no Parquet raises SourceError.

    A record that cannot be read fails its batch: a line that is no JSON, a value that is not of its
    field's type, a time with nanoseconds. `unreadable(record, reason)` makes a record of it
    instead, or passes it over (None). Of an `ObjectRecord` it must always return the same.
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
        found = super().emit_all_new({share: last[share] for share in turns}, room)
        self._served = next((one for one in reversed(turns) if one in room.filled), self._served)
        return found

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
        if (found := self._after(partition, name)) is None and not self._ends:
            if self._clock.now() < self._list_at_s:
                return None
            self._names = self._list()
            self._list_at_s = self._clock.now() + _LIST_S
            found = self._after(partition, name)
        return found

    def _after(self, partition: str, name: str) -> str | None:
        names = self._names[bisect_right(self._names, name) :]
        own = (one for one in names if str(_share(one, self._shares)) == partition)
        return next(own, None)

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
