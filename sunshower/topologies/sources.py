"""Ready-made spouts: lines of text files, any iterable, and a counter."""

from __future__ import annotations

import codecs
import os
import tokenize
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy, deepcopy
from dataclasses import replace
from glob import glob
from io import BufferedReader, TextIOWrapper
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from sunshower.arguments import COUNT, Instance, checked
from sunshower.errors import SourceError, TopologyError
from sunshower.records import copied
from sunshower.topologies.components import Context, Spout
from sunshower.topologies.signatures import result_record

R = TypeVar("R")
_PATH = Instance((str, os.PathLike), 'a path or a glob, such as "corpus/*.txt"')
_SOURCE = Instance(
    (Iterable, Callable), "a list of records, or a function that returns them", but=(str, bytes)
)
_STOP = replace(COUNT, least=0).or_else("none", None)


class Line(NamedTuple):
    """One line of a text file, without its newline. Blank lines are records too."""

    text: str


class Number(NamedTuple):
    """One number of a Counter."""

    value: int


class TextFiles(Spout[Line]):
    """The lines of all files that `patterns` (paths or globs) name, in the order of their paths.

    Task i of p reads files i, i + p, …. The files are looked up once, here, so that every task,
    also a restarted one, has the same list. `encoding` is a codec, or "declared": each file's own
    declaration, as in Python source (PEP 263), else UTF-8. `errors` is as for `open`. A byte order
    mark before UTF-8 is no part of the first line.

    Raises SourceError here for files that are missing or cannot be read, and for a glob without
    matches; while reading for bytes that cannot be decoded.
    """

    @checked(SourceError, patterns=_PATH)
    def __init__(
        self, *patterns: str | os.PathLike[str], encoding: str = "utf-8", errors: str = "strict"
    ) -> None:
        self.encoding, self.errors = encoding, errors
        self.files = files_of("TextFiles", patterns)
        try:
            codecs.lookup_error(errors)
            "".encode("utf-8" if encoding == "declared" else encoding)
        except LookupError as error:
            raise SourceError(f'TextFiles: {error}; use "utf-8", "declared", …') from None
        for path in self.files:
            _open(path).close()

    def open(self, context: Context) -> None:
        """Select this task's files."""
        self.files = self.files[context.index :: context.parallelism]

    def records(self) -> Iterator[Line]:
        new = tuple.__new__  # 360 ns a line; 590 ns through Line(...), reading included
        for path in self.files:
            with _open(path) as file:
                declared = self.encoding == "declared"
                encoding = _declared_encoding(file) if declared else self.encoding
                if is_utf8(encoding):
                    encoding = "utf-8"
                    if file.peek(len(BOM_UTF8)).startswith(BOM_UTF8):
                        file.read(len(BOM_UTF8))
                lines = TextIOWrapper(file, encoding, self.errors)
                try:
                    for line in lines:
                        yield new(Line, (line.rstrip("\n"),))
                except UnicodeDecodeError as error:
                    byte = file.tell() - len(error.object) + error.start
                    raise SourceError(
                        f"{path}, byte {byte}: {error.reason} ({error.encoding}); give the file's "
                        'own encoding, or errors="replace" to read it all the same'
                    ) from None


def files_of(where: str, patterns: Sequence[str | os.PathLike[str]]) -> list[str]:
    """The absolute paths of all files that paths or globs name, in order. Raises SourceError, which
    names the source `where`, for a glob without matches."""
    if not patterns:
        raise SourceError(f'{where}() names no file; give paths or globs: "folder/*"')
    return sorted({path for pattern in patterns for path in matches(os.fspath(pattern), where)})


def is_utf8(encoding: str) -> bool:
    """Whether it is UTF-8, whose texts may begin with a byte order mark."""
    return codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")


class Records(Spout[R]):
    """The records of an iterable, or of the result of a function without parameters.

    Task i of p takes records i, i + p, …. The records are declared by `type`, by `fields`, by the
    annotation of the function (`-> Iterator[Word]`), or by the declaration of the spout. None among
    the records means "nothing now". Raises TopologyError for an iterator: it can be read only once,
    but every (re)started task reads from the start.
    """

    @checked(TopologyError, source=_SOURCE)
    def __init__(
        self,
        source: Iterable[R | None] | Callable[[], Iterable[R | None]],
        *,
        type: type[R] | None = None,
        fields: Sequence[str] | None = None,
    ) -> None:
        if isinstance(source, Iterator):
            raise TopologyError(
                "Records: an iterator can be read only once; give a list, or the "
                "function that makes the iterator"
            )
        self.source = source
        annotated = result_record(source, "Records") if callable(source) else None
        self.emits = type or fields or annotated
        self._first, self._step = 0, 1

    def __deepcopy__(self, memo: Any) -> Records[R]:
        records = copy(self)
        is_code = callable(self.source) or not isinstance(self.source, list | tuple)
        records.source = deepcopy(self.source, memo) if is_code else copied(self.source)
        return records

    def open(self, context: Context) -> None:
        """Set this task's share of the records."""
        self._first, self._step = context.index, context.parallelism

    def records(self) -> Iterator[R | None]:
        source = self.source() if callable(self.source) else self.source
        return islice(source, self._first, None, self._step)


class Counter(Spout[Number]):
    """The numbers 0, 1, 2 … below `stop`, or without end. Task i of p takes i, i + p, …."""

    @checked(TopologyError, stop=_STOP)
    def __init__(self, stop: int | None = None) -> None:
        self.stop = stop
        self._first, self._step = 0, 1

    def open(self, context: Context) -> None:
        """Set this task's share of the numbers."""
        self._first, self._step = context.index, context.parallelism

    def records(self) -> Iterator[Number]:
        first, stop, step = self._first, self.stop, self._step
        return map(Number, count(first, step) if stop is None else range(first, stop, step))


def matches(pattern: str, where: str, *, may_be_none: bool = False) -> list[str]:
    """The absolute paths that `pattern` names: workers have other working directories. Raises
    SourceError, which names the source `where`, for a folder, and if there are none."""
    paths = [pattern]  # a name that exists is not a pattern, even with wildcards
    if Path(pattern).is_dir():
        raise SourceError(
            f"{where}: {pattern} is a folder; give a glob of the files in it, such as "
            f"{os.path.join(pattern, '*')!r}"
        )
    if not Path(pattern).exists():
        paths = [path for path in glob(pattern, recursive=True) if not Path(path).is_dir()]
    if not (paths or may_be_none):
        raise SourceError(
            f"{where}: no file matches {pattern!r} in {Path.cwd()}; check the "
            "spelling, or give an absolute path"
        )
    return [os.path.abspath(path) for path in paths]


def _open(path: str) -> BufferedReader:
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise SourceError(
            f"{path} cannot be read ({error.strerror}); name files that can be, or a "
            "glob that leaves it out"
        ) from None


def _declared_encoding(file: BufferedReader) -> str:
    """Return the encoding that the first two lines declare, or UTF-8; rewinds `file`."""
    try:
        return tokenize.detect_encoding(file.readline)[0]
    except SyntaxError as error:
        if isinstance(error.__context__, UnicodeDecodeError):
            return "utf-8"  # nothing is declared; reading will report the invalid byte
        raise SourceError(f"{error.msg}; give encoding=... instead of the file's own") from None
    finally:
        file.seek(0)
