"""Transactional batches of lines from text files; metadata are byte ranges of the files.

A share is a partition, some of the files one after the other:
{"files": "5c…", "pieces": [[0, 0, 4096, 118, 9073…]], "next": [0, 4096]}
        = file 0 of the share, bytes [0, 4096), 118 lines, their checksum
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Sequence
from itertools import accumulate, islice, repeat
from pathlib import Path, PurePath
from typing import Any
from zlib import crc32

from sunshower.arguments import COUNT, Instance, checked
from sunshower.errors import IncompleteBatch, SourceError, StateMismatch, TopologyError
from sunshower.topologies.sources import Line, TextFiles, is_utf8
from sunshower.trident.spouts.bounds import Bounds, Room
from sunshower.trident.spouts.port import PartitionedSpout

_LINE_BYTES = 64  # assumed length of a line


class TextFileBatches(PartitionedSpout):
    """The lines of files that do not change. `patterns`, `encoding` and `errors` are those of
    TextFiles, except "declared". Files may be added behind the others, in the order of their paths,
    from one run to the next.

    The files are distributed over `shares` partitions, which as many tasks can read. It is fast
    because it reads whole blocks and splits them into lines. Raises SourceError like TextFiles, and
    TopologyError for an encoding in which a newline is not one byte.
    """

    emits = Line

    @checked(TopologyError, patterns=Instance((str, PurePath), "a path or a glob"), shares=COUNT)
    def __init__(
        self,
        *patterns: str | PurePath,
        encoding: str = "utf-8",
        errors: str = "strict",
        bounds: Bounds | None = None,
        shares: int = 8,
    ) -> None:
        files = TextFiles(*patterns, encoding=encoding, errors=errors).files
        if encoding != "declared" and is_utf8(encoding):
            encoding = "utf-8"  # a byte order mark is only at the beginning of a file
        if encoding == "declared" or "\n".encode(encoding) != b"\n":
            raise TopologyError(
                f"TextFileBatches: lines of encoding {encoding!r} cannot be separated by their "
                'bytes; give one as "utf-8" or "latin-1", or convert the files'
            )
        self.files = files
        self.encoding, self.errors = encoding, errors
        self.bounds = bounds or Bounds()
        self.shares = min(shares, len(files))
        self._ids = _ids(files, self.shares)

    def partitions(self) -> Sequence[str]:
        return [str(share) for share in range(self.shares)]

    def emit_new(self, partition: str, last: Any, room: Room) -> Any:
        files = self._files(partition)
        self._check(last)
        at, offset = last["next"] if last else (0, 0)
        pieces: list[list[int]] = []
        while at < len(files) and not room.full:
            block = _whole_lines(files[at], offset, room)
            if block is None:
                break
            if block:
                rows = self._rows(block, files[at], offset)
                room.emit(rows, read_bytes=len(block))
                end = offset + len(block)
                pieces.append([at, offset, end, len(rows), crc32(block)])
                offset = end
            else:
                at, offset = at + 1, 0
        return {"files": self._ids[0], "pieces": pieces, "next": [at, offset]}

    def emit_again(self, partition: str, metadata: Any, room: Room) -> None:
        files = self._files(partition)
        self._check(metadata)
        for at, first, end, _, checksum in metadata["pieces"]:
            block = _read(files[at], first, end - first)
            if crc32(block) != checksum:
                raise IncompleteBatch(
                    f"{files[at]}, bytes {first} to {end}: these are not the {end - first} bytes "
                    "that were read before; the files of a transactional spout must stay as they "
                    "are until their batches are committed"
                )
            room.emit(self._rows(block, files[at], first), read_bytes=len(block))

    def is_end(self, partition: str, metadata: Any) -> bool:
        self._check(metadata)  # also if a run has read all files of the former list
        ended: bool = metadata["next"][0] >= len(self._files(partition))
        return ended

    def _files(self, partition: str) -> Sequence[str]:
        return self.files[int(partition) :: self.shares]

    def _check(self, metadata: Any) -> None:
        if metadata and metadata["files"] not in self._ids:
            raise StateMismatch(
                f"the batches in the store are of another list of files than {len(self.files)} in "
                f"{self.shares} shares, {self.files[0]} and so on: give the same ones as before, "
                "and new ones only behind them, or the spout another id"
            )

    def _rows(self, block: bytes, path: str, offset: int) -> list[Line]:
        if not offset and is_utf8(self.encoding) and block.startswith(BOM_UTF8):
            block, offset = block[len(BOM_UTF8) :], len(BOM_UTF8)
        try:
            text = block.decode(self.encoding, self.errors)
        except UnicodeDecodeError as error:
            raise SourceError(
                f"{path}, byte {offset + error.start}: {error.reason} ({error.encoding}); give the "
                'file\'s own encoding, or errors="replace" to read it all the same'
            ) from None
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()
        return list(map(tuple.__new__, repeat(Line), zip(lines, strict=True)))


def _ids(files: Sequence[str], shares: int) -> list[str]:
    """The ids of the list, of all but the last file, and so on to the first one: a share of the
    first files is the beginning of a share of all."""
    names = [b"\0" + file.encode("utf-8", "surrogateescape") for file in files]
    few = (crc32(b"".join(names[:count]), crc32(b"%d" % count)) for count in range(1, shares))
    more = accumulate(names, lambda id, name: crc32(name, id), initial=crc32(b"%d" % shares))
    return [f"{id:08x}" for id in (*few, *islice(more, shares, None))][::-1]


def _whole_lines(path: str, offset: int, room: Room) -> bytes | None:
    """The next lines of a file, as many as `room` allows. None: the next line is too long. The
    first line of a batch is returned whatever its length."""
    wanted = max(min(room.bytes, room.records * _LINE_BYTES), 1)
    block = _read(path, offset, wanted)
    if len(block) == wanted and not block.endswith(b"\n"):
        end = block.rfind(b"\n") + 1
        if not end and room.rows:
            return None
        block = block[:end] if end else _longer(path, offset, block)
    parts = block.split(b"\n", room.records)
    return block[: len(block) - len(parts[-1])] if len(parts) > room.records else block


def _longer(path: str, offset: int, block: bytes) -> bytes:
    """A line that is longer than the block read so far."""
    while more := _read(path, offset + len(block), len(block)):
        end = more.find(b"\n") + 1
        block += more[:end] if end else more
        if end:
            break
    return block


def _read(path: str, offset: int, size: int) -> bytes:
    try:
        with Path(path).open("rb") as file:
            file.seek(offset)
            return file.read(size)
    except OSError as error:
        raise SourceError(f"{path} cannot be read any more: {error.strerror}") from None
