"""RecordFiles and FollowedFiles: records of files as ordinary streams.

    RecordFiles      the files that exist at the declaration, from the start in each run
    FollowedFiles    files that appear and grow; the position of each is stored

Positions are in a store of the kind that batches have, for each spout:

    /files/<topology>/<component>/0000000007    {"path": "/data/b.jsonl", "at": 4096}

Task 0 lists the files and gives each a number, and task `number % parallelism` reads it. The number
of a record is that of its file and its position, so a new life of a task gives it the same one. The
stored position is the lowest of a record that is not settled, as a committed offset of Kafka.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from itertools import compress
from math import ceil, inf, nan
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sunshower.arguments import CLASS, Instance, checked
from sunshower.connectors.file_formats import (
    SUFFIXES,
    Block,
    Misread,
    RecordReaders,
    is_compressed,
    records_of,
    suffix_of,
)
from sunshower.errors import SourceError, TopologyError
from sunshower.field_types import record_fields
from sunshower.state.log_progress import Progress
from sunshower.state.tree import Tree
from sunshower.texts import clip
from sunshower.topologies.components import Context, Spout
from sunshower.topologies.logs import LogSpout, Polled, Unreadable
from sunshower.topologies.sources import Line, files_of, matches
from sunshower.trident.declaration.stage_builder import InMemory

I64 = NDArray[np.int64]
_PATHS = Instance((str, os.PathLike), 'a path or a glob, such as "orders/*.csv"')
_STORE = Instance((Callable,), 'a store, such as InSqlite("positions.db")')
_BITS = 40  # of a position: a file of a terabyte
_POSITION = (1 << _BITS) - 1
_NO_NUMBERS = np.zeros(0, np.int64)
_LIST_S = 1.0  # between two listings
_STORE_S = 0.5  # between two times at which positions are stored
_SHOWN_BYTES = 500


class RecordFiles(Spout[Any]):
    """Records of `type` from all files that `patterns` (paths or globs) name, in the order of their
    paths: JSON lines (`.jsonl`, `.ndjson`, `.json`), CSV with the names of its columns in the first
    line (`.csv`, `.tsv`), and Parquet (`.parquet`), also compressed (`.jsonl.gz`).

    As with TextFiles, task i of p reads files i, i + p, …, which are looked up once, here. A record
    that cannot be read becomes a dead letter with `file`, `number` (of the line or row, from 1) and
    `value`; without dead letters the topology ends. `encoding` is that of CSV; JSON is in UTF-8.
    Raises SourceError here for files that are missing, and for another suffix; while reading for
    a file that is not Parquet, or CSV without a column of a field.
    """

    @checked(TopologyError, patterns=_PATHS, type=CLASS)
    def __init__(
        self, *patterns: str | os.PathLike[str], type: type[Any], encoding: str = "utf-8"
    ) -> None:
        _check(type, encoding, "RecordFiles")
        self.emits, self.encoding = type, encoding
        self.files = files_of("RecordFiles", patterns)
        for path in self.files:
            _check_suffix(path, type, "RecordFiles")

    def open(self, context: Context) -> None:
        """Select this task's files."""
        self.files = self.files[context.index :: context.parallelism]

    def records(self) -> Iterator[Any]:
        readers = RecordReaders(self.emits, self.encoding)
        for path in self.files:
            for block in readers.blocks(path):
                values = records_of([block])
                if Misread in {*map(type, values)}:
                    values = [_unreadable(0, v) if type(v) is Misread else v for v in values]
                yield from values


class FollowedFiles(LogSpout[Any]):
    """As RecordFiles, of files that appear while the topology runs, and of files of lines that
    grow. With `type=Line`, the lines of files with any suffix.

    `positions` stores how far each file is read, by which the next run continues:
    `InSqlite("positions.db")` or `InZooKeeper("zk:2181")`, of `sunshower.trident`. `ends`: read
    what is there when the run begins, and end.

    A line is read when its newline is there, a `.parquet` or `.gz` as a whole: write it elsewhere,
    or under a hidden name (`.part`), and rename it. A file that is renamed is a new one. One that
    has become shorter than it was read raises SourceError.
    """

    @checked(TopologyError, patterns=_PATHS, type=CLASS, positions=_STORE)
    def __init__(
        self,
        *patterns: str | os.PathLike[str],
        type: type[Any],
        positions: Callable[[], Tree],
        ends: bool = False,
        encoding: str = "utf-8",
    ) -> None:
        _check(type, encoding, "FollowedFiles")
        if not patterns:
            raise SourceError('FollowedFiles() names no file; give paths or globs: "folder/*"')
        self.emits, self.encoding, self.positions, self.ends = type, encoding, positions, ends
        self.patterns = [os.path.abspath(pattern) for pattern in patterns]
        for pattern in self.patterns:
            matches(pattern, "FollowedFiles", may_be_none=True)  # it is no folder
            if "." in (name := Path(pattern).name) and not name.endswith((".*", "*")):
                _check_suffix(pattern, type, "FollowedFiles")

    # ---- life ---------------------------------------------------------------------------------

    def open(self, context: Context) -> None:
        self._context, self._tree = context, self.positions()
        self._home = f"/files/{context.topology}/{context.component}"
        self._readers = RecordReaders(self.emits, self.encoding)
        self._numbers: dict[str, int] = {}  # of all files that have one, by path
        self._files: dict[int, _File] = {}  # of this task
        self._turns: deque[_File] = deque()  # those that have more
        self._broken: dict[_File, SourceError] = {}  # those that cannot be read now
        self._misnamed: list[SourceError] = []  # of the last listing
        self._open = 0  # records that are not settled
        self._listed_s = self._stored_s = self._asked_s = self._tried_s = -inf
        self._has_listed = False  # all files that were there are known

    def close(self) -> None:
        self._store()
        self._tree.close()

    def from_start(self) -> FollowedFiles:
        spout = copy(self)
        spout.positions = InMemory()
        return spout

    # ---- reading ------------------------------------------------------------------------------

    def poll(self, limit: int) -> Polled[Any] | None:
        now = self._context.clock.now()
        if now - self._stored_s >= _STORE_S:
            self._store()
            self._stored_s = now
        if not limit:
            return None
        lists_again = not (self.ends and self._has_listed)
        if lists_again and not self._turns and now - self._listed_s >= _LIST_S:
            self._list()
            self._listed_s = now
        if self._broken and (not self._turns or now - self._tried_s >= _LIST_S):
            self._turns.extend(self._broken)
            self._broken, self._tried_s = {}, now
        parts: list[tuple[I64, list[Any]]] = []
        left = limit
        while self._turns and left:
            try:
                parts.append(self._turns[0].next(left))
            except StopIteration:
                self._turns.popleft()
            except SourceError as error:
                self._broken[self._turns.popleft()] = error
            else:
                left -= len(parts[-1][0])
        if not parts:  # no other file has anything
            for why in (*self._broken.values(), *self._misnamed):
                raise why
        numbers = np.concatenate([_NO_NUMBERS, *(numbers for numbers, _ in parts)])
        records = [value for _, values in parts for value in values]
        self._open += len(numbers)
        unreadable: list[Unreadable] = []
        if Misread in {*map(type, records)}:
            bad = np.array([type(value) is Misread for value in records])
            unreadable = [
                _unreadable(int(number), value)
                for number, value in zip(numbers[bad], compress(records, bad), strict=True)
            ]
            numbers, records = numbers[~bad], [*compress(records, ~bad)]
        self._asked_s = now
        ended = self.ends and self.has_read_first()
        return Polled(numbers, records, unreadable, ended=ended)

    def acked(self, numbers: I64) -> None:
        self._open -= len(numbers)
        files = numbers >> _BITS
        for number in np.unique(files).tolist():
            self._files[number].ack(numbers[files == number] & _POSITION)

    def has_read_first(self) -> bool:
        return self._has_listed and not self._turns and not self._broken

    def partitions_at_end(self) -> Mapping[int, float]:
        return {0: self._asked_s} if self.has_read_first() else {}

    def message_id(self, number: int) -> Any:
        """The path of the file, and the position in it."""
        return self._files[number >> _BITS].path, number & _POSITION

    def figures(self) -> Mapping[str, float]:
        """How many files this task has, of how many the end was not read yet, how many cannot be
        read now; and the lag in records, of which those that are not read are estimated from their
        bytes: NaN for compressed and Parquet files."""
        return {
            "files": len(self._files),
            "files to read": len(self._turns),
            "unreadable files": len(self._broken) + len(self._misnamed),
            "lag": self._lag(),
        }

    def _lag(self) -> float:
        if not self._has_listed:
            return nan
        left = sum(file.unread() for file in (*self._turns, *self._broken))
        if not left:
            return float(self._open)
        size = sum(file.bytes_read for file in self._files.values())
        records = sum(file.records_read for file in self._files.values())
        return self._open + ceil(left * records / size) if size else nan

    # ---- positions ----------------------------------------------------------------------------

    def _list(self) -> None:
        """Look for new files, and for those that have grown."""
        names = self._tree.children(self._home)
        for name in names[len(self._numbers) :]:
            self._know(int(name), self._node(int(name)))
        paths = {
            path
            for pattern in self.patterns
            for path in matches(pattern, "FollowedFiles", may_be_none=True)
        }
        new = [path for path in sorted(paths - self._numbers.keys()) if not _is_hidden(path)]
        if not self._context.index:
            self._misnamed = [error for path in new if (error := self._register(path))]
            new = []
        for file in self._files.values():
            try:
                # Not those of the patterns of an earlier run.
                if file.path in paths and file not in self._broken and file.has_more():
                    self._turns.append(file)
            except SourceError as error:
                self._broken[file] = error
        # Task 0 has not given them numbers yet, or cannot.
        self._has_listed = self._has_listed or not (new or self._misnamed)

    def _register(self, path: str) -> SourceError | None:
        """Give a file the next number, unless its suffix is wrong. Raises NodeExists if a former
        life of this task has just given it to a file."""
        try:
            _check_suffix(path, self.emits, "FollowedFiles")
        except SourceError as error:
            return error
        number, content = len(self._numbers), {"path": path, "at": 0}
        self._tree.create(f"{self._home}/{number:010}", json.dumps(content).encode())
        self._know(number, content)
        return None

    def _know(self, number: int, content: dict[str, Any]) -> None:
        self._numbers[content["path"]] = number
        if number % self._context.parallelism == self._context.index:
            self._files[number] = _File(number, content, self._readers, whole=self.ends)

    def _node(self, number: int) -> dict[str, Any]:
        node = self._tree.get(f"{self._home}/{number:010}")
        assert node is not None
        content: dict[str, Any] = json.loads(node.value)
        return content

    def _store(self) -> None:
        """Store the positions that have changed. Raises StoreUnreachable."""
        for number, file in self._files.items():
            if (content := file.content()) != file.stored:
                self._tree.set(f"{self._home}/{number:010}", json.dumps(content).encode())
                file.stored = content


class _File:
    """A file that a task reads, from its stored position on."""

    def __init__(
        self, number: int, stored: dict[str, Any], readers: RecordReaders, *, whole: bool
    ) -> None:
        self.path, self.stored = stored["path"], stored
        self._number, self._readers = number, readers
        self._at = stored["at"]
        self._grows = not is_compressed(self.path) and suffix_of(self.path) != ".parquet"
        self._whole = whole or not self._grows
        self._is_done = stored.get("done", False)  # and will not grow
        self._progress: Progress | None = None  # while records of it are open
        self._blocks: Iterator[Block] | None = None
        self._rest: Block | None = None  # of the block that was read last
        self._size = -1  # when it was begun
        self.bytes_read = self.records_read = 0  # of this life, if it grows

    @property
    def _read(self) -> int:
        """The position up to which it was read."""
        return self._at if self._progress is None else self._progress.emitted

    def has_more(self) -> bool:
        """Whether it has changed since it was read to its end. Raises SourceError if what was read
        is gone."""
        if self._is_done or (size := _size(self.path)) is None:
            return False
        if self._grows and size < self._read:
            raise SourceError(
                f"{self.path} has {size} bytes, and {self._read} were read: a file that is "
                "followed must only grow. Rename it: a file of another name is read from its start"
            )
        return size != self._size

    def unread(self) -> float:
        """How many bytes are left to read; NaN if its positions are not bytes."""
        if not self._grows:
            return nan
        return max((_size(self.path) or 0) - self._read, 0)

    def next(self, limit: int) -> tuple[I64, list[Any]]:
        """Up to so many of the next records, with their numbers. Raises StopIteration at the end,
        and SourceError for a file that cannot be read, again at each call."""
        if self._blocks is None:
            if (size := _size(self.path)) is None:  # the remedy that an error names
                raise StopIteration
            self.has_more()
            self._size = size
            self._blocks = self._readers.blocks(self.path, self._read, whole=self._whole)
            self._progress = self._progress or Progress(self._read)
        assert self._progress is not None
        try:
            firsts, end, values = self._rest or next(self._blocks)
        except (StopIteration, SourceError) as error:
            self._blocks = None
            self._is_done = isinstance(error, StopIteration) and not self._grows
            self._settle()
            raise
        self._rest = Block(firsts[limit:], end, values[limit:]) if len(values) > limit else None
        positions = np.array(firsts[:limit], np.int64)
        before = self._progress.emitted
        self._progress.emit(positions)
        self._progress.reached(self._rest.firsts[0] if self._rest else end)
        if self._grows:
            self.bytes_read += self._progress.emitted - before
            self.records_read += len(positions)
        return (self._number << _BITS) + positions, values[:limit]

    def ack(self, positions: I64) -> None:
        """Settle the records at these positions."""
        if self._progress is not None:
            self._progress.ack(positions)
            self._settle()

    def _settle(self) -> None:
        """Note the position, and free the progress if it is not needed."""
        assert self._progress is not None
        self._at = self._progress.contiguous
        if self._blocks is None and not self._progress.unsettled:
            self._progress = None

    def content(self) -> dict[str, Any]:
        """What is to be stored."""
        content = {"path": self.path, "at": self._at}
        return content | {"done": True} if self._is_done and self._progress is None else content


def _size(path: str) -> int | None:
    try:
        return os.path.getsize(path)
    except FileNotFoundError:  # it was removed
        return None


def _is_hidden(path: str) -> bool:
    """Whether a file is not to be read yet, by its name."""
    return Path(path).name.startswith((".", "_"))


def _unreadable(number: int, misread: Misread) -> Unreadable:
    """The dead letter of what cannot be read."""
    (path, place, value), reason = misread.record, misread.reason
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value.to_pylist())
    letter = {"file": path, "number": place, "value": clip(text, _SHOWN_BYTES)}
    unit = "line" if isinstance(value, bytes) else "row"
    # In quotes, so that the letters of several files are one group.
    return Unreadable(number, letter, f"{reason} ({unit} {place} of {path!r})", "UnreadableRecord")


def _check(kind: type[Any], encoding: str, where: str) -> None:
    if kind is not Line:
        record_fields(kind)
    try:
        newline = "\n".encode(encoding)
    except LookupError as error:
        raise SourceError(f'{where}: {error}; use "utf-8", "latin-1", …') from None
    if newline != b"\n":
        raise SourceError(
            f"{where}: lines of encoding {encoding!r} cannot be separated by their bytes; give one "
            'as "utf-8" or "latin-1", or convert the files'
        )


def _check_suffix(path: str, kind: type[Any], where: str) -> None:
    if kind is not Line and not suffix_of(path):
        raise SourceError(
            f"{where}: {path}: the suffix says how a file is read: {', '.join(SUFFIXES)}, also "
            "with .gz. Rename it, give a glob that leaves it out, or type=Line for its lines"
        )
