"""Stores a reader's results and offsets in one SQLite file, in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from sunshower import versions
from sunshower.state.backing import ANSWER_WITHIN_S
from sunshower.state.results import Results
from sunshower.state.sqlite import Tables, connect, errors, is_of_statement, transaction

_SCHEMA = """CREATE TABLE IF NOT EXISTS sunshower_offsets (
    id TEXT, topic TEXT, partition INTEGER, settled INTEGER, done TEXT NOT NULL,
    version INTEGER NOT NULL, PRIMARY KEY (id, topic, partition)
) WITHOUT ROWID"""
_OFFSETS = Tables("the offsets", versions.OFFSETS, [_SCHEMA], "sunshower_offsets")


class SqliteResults(Results):
    """Results and offsets in a file."""

    def __init__(
        self, file: Path | str, id: str, *, answer_within_s: float = ANSWER_WITHIN_S
    ) -> None:
        super().__init__(id)
        self._file = Path(file)
        with errors(self._file):
            self._connection = connect(self._file, answer_within_s)
            _OFFSETS.make(self._connection, self._file)

    def setup(self, script: str) -> None:
        with self._db() as db:
            db.executescript(script)

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _db(self) -> Iterator[sqlite3.Connection]:
        with errors(self._file):
            yield self._connection

    def _begin(self, db: sqlite3.Connection) -> AbstractContextManager[None]:
        return transaction(db)

    def _is_of_user_code(self, error: BaseException, db: sqlite3.Connection) -> bool:
        return is_of_statement(error)
