"""Batch spouts of rows in this process, given or fed while it runs, and of lines of text files.

Storm: org.apache.storm.trident.testing.FixedBatchSpout, FeederBatchSpout
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Sequence
from copy import copy
from itertools import accumulate, chain, islice, repeat
from pathlib import Path, PurePath
from typing import Any
from zlib import crc32

from sunshower.arguments import COUNT, Each, Instance, checked
from sunshower.errors import ConfigError, IncompleteBatch, SourceError, StateMismatch, TopologyError
from sunshower.records import copied
from sunshower.state.tree import Tree
from sunshower.topologies.components import Context
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.sources import Line, TextFiles, is_utf8
from sunshower.trident.spouts.bounds import Bounds, Room
from sunshower.trident.spouts.port import Coordinator, Emitter, PartitionedSpout, Rows, SpoutKind

_ROWS = Each(Instance((object,), "a row"), "a list of rows")


class _RangeEmitter(Emitter):
    """Emits the rows from `first` to `end` of the metadata, which `read` returns."""

    def __init__(self, read: Callable[[int, int], list[Any]]) -> None:
        self._read = read

    def emit_batch(self, attempt: Attempt, metadata: Any, rows: Rows) -> None:
        rows.emit(self._read(metadata["first"], metadata["end"]))


class FixedBatchSpout:
    """Emits `size` rows per batch: seven rows at size 3 give 3, 3, 1, then empty batches.

    `type` or `fields` declares the rows. With `cycle` it starts over after the last row: 3, 3, 1,
    3, 3, 1 … The coordinator's store holds the range of each batch, so a batch is the same in every
    attempt, also after a restart, and another run with the same store continues.
    """

    kind = SpoutKind.TRANSACTIONAL
    commits = False
    parallelism_max = 1  # as in Storm

    @checked(TopologyError, rows=_ROWS, size=COUNT)
    def __init__(
        self,
        rows: Sequence[Any],
        size: int,
        *,
        type: type[Any] | None = None,
        fields: Sequence[str] | None = None,
        cycle: bool = False,
    ) -> None:
        if cycle and not rows:
            raise TopologyError("FixedBatchSpout: it has no rows to repeat")
        self.rows = [*rows]
        self.size = size
        self.cycle = cycle
        self.emits = type or fields

    def __deepcopy__(self, memo: Any) -> FixedBatchSpout:
        spout = copy(self)
        spout.rows = copied(self.rows)
        return spout

    def coordinator(self, store: Tree, path: str, context: Context) -> Coordinator:
        return _FixedCoordinator(self)

    def emitter(self, store: Tree, path: str, context: Context) -> Emitter:
        return _RangeEmitter(lambda first, end: self.rows[first:end])


class _FixedCoordinator(Coordinator):
    def __init__(self, spout: FixedBatchSpout) -> None:
        self._spout = spout

    def initialize(self, txid: int, previous: Any, current: Any) -> Any:
        if current is not None:
            return current
        first, row_count = previous["end"] if previous else 0, len(self._spout.rows)
        if first >= row_count and self._spout.cycle:
            first = 0
        return {"first": first, "end": min(first + self._spout.size, row_count)}

    def is_last(self, metadata: Any) -> bool:
        return not self._spout.cycle and metadata["end"] >= len(self._spout.rows)


class _Feed:
    """The state that all copies of a feeder share."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.ended = False
        self.planned = 0  # how many of them have been put into a batch
        self.last_txid = 0  # the last that has begun
        self.committed: list[int] = []  # txids

    def __deepcopy__(self, memo: Any) -> _Feed:
        return self

    def __reduce__(self) -> Any:
        raise ConfigError(
            "a FeederBatchSpout cannot be shared by several processes: run it in one, as in the "
            "simulator, or take a source that all of them can read"
        )


class FeederBatchSpout:
    """Each `feed` is one batch; no batch begins without one. Copies share what is fed."""

    kind = SpoutKind.TRANSACTIONAL
    commits = False
    parallelism_max = 1

    @checked(TopologyError)
    def __init__(
        self, *, type: type[Any] | None = None, fields: Sequence[str] | None = None
    ) -> None:
        self.emits = type or fields
        self._feed = _Feed()

    @checked(TopologyError, "FeederBatchSpout.feed", rows=_ROWS)
    def feed(self, rows: Sequence[Any]) -> None:
        """Make one batch of these rows."""
        self._feed.batches.append([*rows])

    def end(self) -> None:
        """Announce that there are no more rows, so that the topology may end."""
        self._feed.ended = True

    @property
    def committed(self) -> list[int]:
        """The txids whose success was reported, in that order."""
        return [*self._feed.committed]

    def coordinator(self, store: Tree, path: str, context: Context) -> Coordinator:
        return _FeedCoordinator(self._feed)

    def emitter(self, store: Tree, path: str, context: Context) -> Emitter:
        return _RangeEmitter(lambda at, end: [*chain.from_iterable(self._feed.batches[at:end])])


class _FeedCoordinator(Coordinator):
    def __init__(self, feed: _Feed) -> None:
        self._feed = feed

    def initialize(self, txid: int, previous: Any, current: Any) -> Any:
        self._feed.last_txid = max(self._feed.last_txid, txid)
        if current is not None:
            return current
        first = previous["end"] if previous else 0
        end = min(first + 1, len(self._feed.batches))
        self._feed.planned = max(self._feed.planned, end)
        return {"first": first, "end": end}

    def success(self, txid: int) -> None:
        self._feed.committed.append(txid)

    def is_ready(self, txid: int) -> bool:
        feed = self._feed
        return feed.ended or txid <= feed.last_txid or feed.planned < len(feed.batches)

    def is_last(self, metadata: Any) -> bool:
        return self._feed.ended and metadata["end"] >= len(self._feed.batches)


# ---- lines of text files -------------------------------------------------------------------------

# A share is a partition, some of the files one after the other:
# {"files": "5c…", "pieces": [[0, 0, 4096, 118, 9073…]], "next": [0, 4096]}
#         = file 0 of the share, bytes [0, 4096), 118 lines, their checksum

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
