"""Stores a reader's results and offsets in one SQLite file, in one transaction.

    sunshower_offsets   id, topic, partition → settled, done, version

All below `settled` is done, and the offsets in `done`: JSON, as [[7,9],[12,13]] for 7, 8, 12.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from sunshower import versions
from sunshower.errors import WrongVersion
from sunshower.state.backing import ANSWER_WITHIN_S
from sunshower.state.sqlite import Tables, connect, errors, is_of_statement, transaction

_SCHEMA = """CREATE TABLE IF NOT EXISTS sunshower_offsets (
    id TEXT, topic TEXT, partition INTEGER, settled INTEGER, done TEXT NOT NULL,
    version INTEGER NOT NULL, PRIMARY KEY (id, topic, partition)
) WITHOUT ROWID"""
_OFFSETS = Tables("the offsets", versions.OFFSETS, [_SCHEMA], "sunshower_offsets")
_ROW = """SELECT settled, done, version FROM sunshower_offsets
    WHERE id = ? AND topic = ? AND partition = ?"""

Pairs = list[tuple[int, int]]
Source = tuple[str, int]  # a topic and a partition number


class Read(NamedTuple):
    """The progress of a partition."""

    settled: int | None  # all below is done; None: not set
    done: Pairs
    version: int  # the number of writes of results


class Results(Protocol):
    """A client of the database, for the offsets of one id. Raises StoreUnreachable, or StoreError
    for permanent errors."""

    def setup(self, script: str) -> None:
        """Run SQL that creates missing tables of the results."""

    def read(self, source: Source) -> Read:
        """The progress of a partition."""

    def write(
        self, done: Mapping[Source, tuple[Pairs, int]], results: Callable[[Any], None]
    ) -> None:
        """Write results and the offsets they cover in one transaction; `results` writes the former,
        with the client's connection.

        `done` has the pairs and the version they were derived from: raises WrongVersion if another
        task has written since. Exceptions of `results` are raised unchanged, also for a wrong
        statement, but not for a damaged or unavailable database.
        """

    def settle(self, settled: Mapping[Source, int]) -> None:
        """Store that all offsets below are done, in one transaction."""

    def close(self) -> None:
        """Close the connection."""


class SqliteResults:
    """Implements the port `Results` in a file."""

    def __init__(
        self, file: Path | str, id: str, *, answer_within_s: float = ANSWER_WITHIN_S
    ) -> None:
        self._file = Path(file)
        self._id = id
        with errors(self._file):
            self._db = connect(self._file, answer_within_s)
            _OFFSETS.make(self._db, self._file)

    def setup(self, script: str) -> None:
        with errors(self._file):
            self._db.executescript(script)

    def read(self, source: Source) -> Read:
        with errors(self._file):
            return self._read(source)

    def write(
        self,
        done: Mapping[Source, tuple[Pairs, int]],
        results: Callable[[sqlite3.Connection], None],
    ) -> None:
        theirs: list[BaseException] = []
        with errors(self._file, theirs), transaction(self._db):
            for source, (_, version) in done.items():
                found = self._read(source).version
                if found != version:
                    raise WrongVersion(
                        f"{source[0]}[{source[1]}] of {self._id!r} in {self._file} has version "
                        f"{found}, not {version}: another task has written results of it"
                    )
            try:
                results(self._db)
            except Exception as error:
                if is_of_statement(error):
                    theirs.append(error)
                raise
            self._db.executemany(
                "INSERT INTO sunshower_offsets VALUES (?, ?, ?, NULL, ?, ?) ON CONFLICT"
                " DO UPDATE SET done = excluded.done, version = excluded.version",
                [
                    (self._id, *source, json.dumps(pairs), version + 1)
                    for source, (pairs, version) in done.items()
                ],
            )

    def settle(self, settled: Mapping[Source, int]) -> None:
        with errors(self._file), transaction(self._db):
            self._db.executemany(
                "INSERT INTO sunshower_offsets VALUES (?, ?, ?, ?, '[]', 0) ON CONFLICT"
                " DO UPDATE SET settled = excluded.settled",
                [(self._id, *source, offset) for source, offset in settled.items()],
            )

    def close(self) -> None:
        self._db.close()

    def _read(self, source: Source) -> Read:
        row = self._db.execute(_ROW, (self._id, *source)).fetchone()
        if row is None:
            return Read(None, [], 0)
        return Read(row[0], [(first, end) for first, end in json.loads(row[1])], row[2])
