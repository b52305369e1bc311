"""Storage of states in a SQLite file: a table for each state, for the processes of one machine.

    SELECT key, value FROM "counts"      "storm" | [7,3,2]      values are JSON

One batch of one task is one transaction, which is on disk when `put` returns.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path

from sunshower.errors import ConfigError
from sunshower.state.backing import ANSWER_WITHIN_S, Home, Mark, is_there, table_of
from sunshower.state.sqlite import connect, errors, transaction

MARKS = """CREATE TABLE IF NOT EXISTS sunshower_marks (
    state TEXT, task INTEGER, word TEXT NOT NULL, journal TEXT NOT NULL, PRIMARY KEY (state, task)
) WITHOUT ROWID"""
_VALUES = """CREATE TABLE IF NOT EXISTS {} (
    key TEXT, task INTEGER, value TEXT NOT NULL, PRIMARY KEY (key, task)
) WITHOUT ROWID"""
_AT_ONCE = 500  # keys in one SELECT; SQLite may be built with a limit of 999
_ROWS_AT_ONCE = 100  # in one INSERT, sorted by key: 1.6 µs a row, one by one 2.6 µs


def homes(file: Path, *, answer_within_s: float = ANSWER_WITHIN_S) -> list[Home]:
    """All homes with a mark, in order; none if the file does not exist."""
    if not file.exists():
        return []
    with errors(file), closing(connect(file, answer_within_s)) as db:
        if not _table(db, "sunshower_marks"):
            return []
        rows = db.execute("SELECT state, task FROM sunshower_marks ORDER BY state, task")
        return [Home(*row) for row in rows]


class SqliteBacking:
    """Implements the port `Backing`. It waits up to `answer_within_s` for other writers."""

    def __init__(
        self, file: Path | str, home: Home, *, answer_within_s: float = ANSWER_WITHIN_S
    ) -> None:
        self._file = Path(file)
        self._home = home
        self._table = table_of(home)
        self._select = f"SELECT key, value FROM {self._table}"  # noqa: S608 (a name that is quoted)
        with errors(self._file):
            self._db = connect(self._file, answer_within_s)
            try:
                self._make_tables()
            except BaseException:
                self._db.close()
                raise

    def mark(self) -> Mark | None:
        sql = "SELECT word, journal FROM sunshower_marks WHERE state = ? AND task = ?"
        with errors(self._file):
            row = self._db.execute(sql, self._home).fetchone()
        return row and Mark(*row)

    def get(self, keys: Sequence[str]) -> list[str | None]:
        found: dict[str, str] = {}
        with errors(self._file):
            for start in range(0, len(keys), _AT_ONCE):
                some = keys[start : start + _AT_ONCE]
                marks = ",".join("?" * len(some))
                sql = f"{self._select} WHERE key IN ({marks}) AND task = ?"
                found.update(self._db.execute(sql, (*some, self._home.task)))
        return [found.get(key) for key in keys]

    def put(self, changes: Mapping[str, str | None], mark: Mark, seen: str | None) -> None:
        with errors(self._file), transaction(self._db):
            row = self._db.execute(
                "SELECT word FROM sunshower_marks WHERE state = ? AND task = ?", self._home
            ).fetchone()
            if not is_there(self._home, row and row[0], mark, seen):
                sql = "INSERT OR REPLACE INTO sunshower_marks VALUES (?, ?, ?, ?)"
                self._db.execute(sql, (*self._home, *mark))
                self._write(changes)

    def _make_tables(self) -> None:
        """Create missing tables. If they exist, this takes no lock and waits for no writer."""
        if not (_table(self._db, "sunshower_marks") and _table(self._db, self._home.state)):
            with transaction(self._db):
                self._db.execute(MARKS)
                self._db.execute(_VALUES.format(self._table))
        found = _table(self._db, self._home.state)
        if found != self._home.state:
            raise ConfigError(
                f"{self._file}: there is a table {found!r} already, and SQLite takes its name and "
                f"{self._home.state!r} for one; give the state another one with `name`"
            )

    def _write(self, changes: Mapping[str, str | None]) -> None:
        task = self._home.task
        insert = f"INSERT OR REPLACE INTO {self._table} VALUES "  # noqa: S608
        rows = sorted((key, value) for key, value in changes.items() if value is not None)
        several = insert + ",".join([f"(?, {task}, ?)"] * _ROWS_AT_ONCE)
        one_by_one = len(rows) - len(rows) % _ROWS_AT_ONCE
        for start in range(0, one_by_one, _ROWS_AT_ONCE):
            some = rows[start : start + _ROWS_AT_ONCE]
            self._db.execute(several, [*chain.from_iterable(some)])
        self._db.executemany(f"{insert}(?, {task}, ?)", rows[one_by_one:])
        self._db.executemany(
            f"DELETE FROM {self._table} WHERE key = ? AND task = {task}",  # noqa: S608
            [(key,) for key, value in changes.items() if value is None],
        )

    def items(self) -> Iterator[tuple[str, str]]:
        sql = f"{self._select} WHERE task = ?"
        with errors(self._file):
            yield from self._db.execute(sql, (self._home.task,))

    def count(self) -> int:
        sql = f"SELECT COUNT(*) FROM {self._table} WHERE task = ?"  # noqa: S608
        with errors(self._file):
            (found,) = self._db.execute(sql, (self._home.task,)).fetchone()
        return int(found)

    def close(self) -> None:
        self._db.close()


def _table(db: sqlite3.Connection, name: str) -> str | None:
    """The actual name of a table, compared without case as SQLite does; None if there is none."""
    sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE"
    row = db.execute(sql, (name,)).fetchone()
    return row and str(row[0])
