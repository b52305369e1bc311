"""Ready-made sinks: JSON lines in a file, and lines on the standard output."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sunshower.arguments import FLAG, Instance, checked
from sunshower.errors import TopologyError, TopologyFailed
from sunshower.json_values import json_text
from sunshower.records import Schema, record_class
from sunshower.texts import utf8, write
from sunshower.topologies.components import Bolt, Context, Stateless
from sunshower.topologies.record_parts import RecordParts
from sunshower.topologies.retry import LetterStore

_LOG = logging.getLogger("sunshower")
_PATH = Instance((str, os.PathLike), 'the path of a file, such as "words.jsonl"', False)


class JsonLines(Stateless, Bolt[Any, None]):
    """One JSON object a record, field → value, in the file at `path`.

    A new run replaces the file, unless a source upstream continues where the former run has stopped
    (see `Graph.begin_outputs`); with `append=True` no run does, with `append=False` every new one.
    Of several tasks, each has its own file: `words.jsonl` becomes `words.0.jsonl` and so on. Lines
    are passed to the operating system before their records are acked; a replayed record is written
    again. On a full disk nothing is written, no line is left incomplete, and the topology waits.
    Plain tuples have the names of their stream.

    Raises TopologyError for a path that cannot be written. Dates, decimals, UUIDs and Enums are
    texts (docs/RECORDS.md). A value that JSON cannot represent (bytes, sets, NaN, infinity)
    fails its record.
    """

    @checked(TopologyError, path=_PATH, append=FLAG.or_else("none", None))
    def __init__(self, path: str | os.PathLike[str], *, append: bool | None = None) -> None:
        self.path = Path(path).absolute()
        self.append = append
        self._reader = RecordParts(f"JsonLines({self.path.name})")
        target = self.path if self.path.exists() else self.path.parent
        if self.path.is_dir() or not self.path.parent.is_dir() or not os.access(target, os.W_OK):
            raise TopologyError(
                f"JsonLines: {self.path} cannot be written; give a file in a "
                "folder that exists and that you may write to"
            )

    def check_input(self, schema: Schema) -> None:
        """Raise RecordMismatch for plain tuples of inputs with different fields."""
        self._reader.check(schema, [None])

    def prepare(self, context: Context) -> None:
        """Open the file; an incomplete last line of a killed task will get its newline first."""
        self._lines: list[str] = []
        self._named = self._reader.getter(None)
        path = self._path_of(context.index, context.parallelism)
        self._file = path.open("ab+", buffering=0)
        self._file.seek(max(self._file.tell() - 1, 0))
        self._is_torn = self._file.read() not in (b"", b"\n")

    def process(self, record: Any) -> None:
        self._lines.append(json_text(self._named(record)) + "\n")

    def flush(self) -> None:
        """Write the lines to the operating system: they survive this process, but not a power
        failure.

        All of them are in the file, or none is and the system's OSError is raised.
        """
        lines, self._lines = self._lines, []
        self._write(utf8("".join(lines)))

    def _write(self, data: bytes) -> None:
        if not data:
            return
        if self._is_torn:
            data = b"\n" + data
        written = 0
        try:
            while written < len(data):  # once, unless the disk fills up or a signal arrives
                written += self._file.write(data[written:])
        except OSError:
            self._is_torn = not self._take_back(written) or self._is_torn
            raise
        self._is_torn = False

    def _take_back(self, count: int) -> bool:
        """Remove the last `count` bytes; False if another task has appended to them, or the disk
        refuses."""
        if not count:
            return True
        end = self._file.tell()
        try:
            if self._file.seek(0, os.SEEK_END) == end:
                self._file.truncate(end - count)
                return True
        except OSError:
            _LOG.warning("%s: its last line is not whole", self.path, exc_info=True)
        return False

    def __sunshower_begin__(self, parallelism: int, *, continues: bool) -> None:
        """Replace the files of all tasks, before any task runs; `continues`: if `append` does not
        say what to do. Raises TopologyError."""
        if continues if self.append is None else self.append:
            return
        for path in (self._path_of(n, parallelism) for n in range(parallelism)):
            try:
                if path.is_file():  # no pipe or device, which has no former output
                    os.truncate(path, 0)
            except OSError as error:
                raise TopologyError(
                    f"JsonLines: {path}, the output of a former run, cannot be replaced "
                    f"({error.strerror}). Remove it, or give append=True"
                ) from error

    def __sunshower_letter_store__(self, parallelism: int) -> LetterStore:
        """The files of all tasks, if these records are dead letters."""
        return LetterStore(tuple(str(self._path_of(n, parallelism)) for n in range(parallelism)))

    def _path_of(self, index: int, parallelism: int) -> Path:
        path = self.path
        return path.with_stem(f"{path.stem}.{index}") if parallelism > 1 else path

    def cleanup(self) -> None:
        with self._file:
            self.flush()


class Stdout(Stateless, Bolt[Any, None]):
    """Each record as a line on the standard output: its values separated by tabs, or `format`."""

    delimited: Callable[[Any], str] = str  # what is written for a text: see actors/output.py

    @checked(TopologyError)
    def __init__(self, format: Callable[[Any], str] | None = None) -> None:  # noqa: A002
        self.format = format or _tabbed
        self._lines: list[str] = []

    def process(self, record: Any) -> None:
        self._lines.append(f"{self.delimited(self.format(record))}\n")

    def flush(self) -> None:
        """Write the collected lines at once. Characters that the output's encoding lacks are
        escaped, on a terminal also control characters. Raises TopologyFailed if the output is
        closed: waiting does not help."""
        lines, self._lines = self._lines, []
        try:
            write(sys.stdout, "".join(lines))
        except BrokenPipeError as error:
            raise TopologyFailed("the standard output is closed") from error


def _tabbed(record: Any) -> str:
    if isinstance(record, dict):
        record = record.values()
    elif not isinstance(record, tuple):
        record = record_class(type(record)).values(record)
    return "\t".join(map(str, record))
