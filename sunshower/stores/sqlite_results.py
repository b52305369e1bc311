"""Results of a reader and how far it has read, in one file of SQLite and in one transaction.

    sunshower_offsets   id, topic, partition → settled, done, version

All below `settled` is done, and the offsets in `done`, JSON such as [[7,9],[12,13]] for 7, 8, 12.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from sunshower.errors import WrongVersion
from sunshower.stores.backing import ANSWER_WITHIN_S
from sunshower.stores.sqlite import connect, errors, is_of_statement, transaction

_OFFSETS = """CREATE TABLE IF NOT EXISTS sunshower_offsets (
    id TEXT, topic TEXT, partition INTEGER, settled INTEGER, done TEXT NOT NULL,
    version INTEGER NOT NULL, PRIMARY KEY (id, topic, partition)
) WITHOUT ROWID"""
_ROW = """SELECT settled, done, version FROM sunshower_offsets
    WHERE id = ? AND topic = ? AND partition = ?"""

Pairs = list[tuple[int, int]]
Source = tuple[str, int]  # a topic, and the number of a partition


class Read(NamedTuple):
    """How far a partition is read."""

    settled: int | None  # all below is done; None: nobody has said
    done: Pairs
    version: int  # counts the writes of results; 0: there are none


class SqliteResults:
    """A client of the file, for what is read under `id`. Raises StoreUnreachable, or StoreError
    for what waiting does not mend."""

    def __init__(
        self, file: Path | str, id: str, *, answer_within_s: float = ANSWER_WITHIN_S
    ) -> None:
        self._file = Path(file)
        self._id = id
        with errors(self._file):
            self._db = connect(self._file, answer_within_s)
            self._db.execute(_OFFSETS)

    def setup(self, script: str) -> None:
        """Run SQL that makes the tables of the results, if they are not there."""
        with errors(self._file):
            self._db.executescript(script)

    def read(self, source: Source) -> Read:
        """How far a partition is read."""
        with errors(self._file):
            return self._read(source)

    def write(
        self,
        done: Mapping[Source, tuple[Pairs, int]],
        results: Callable[[sqlite3.Connection], None],
    ) -> None:
        """Keep results, and what is done with them, all or nothing; `results` makes them.

        `done` has the version beside the pairs that it was made from: raises WrongVersion if
        somebody else has written since. What `results` raises comes through, also of a wrong
        statement; not so where the file is damaged, or does not answer.
        """
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
        """All below is done: keep that, all or nothing."""
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
