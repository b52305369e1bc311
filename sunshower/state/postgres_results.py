"""Stores a reader's results and offsets in one PostgreSQL, in one transaction.

The table `sunshower_offsets` is that of sqlite_results.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from sunshower import versions
from sunshower.errors import WrongVersion
from sunshower.outages import is_unavailable
from sunshower.secret import Secret
from sunshower.state.backing import ANSWER_WITHIN_S
from sunshower.state.postgres_backing import ALONE, PostgresClient
from sunshower.state.sqlite_results import Pairs, Read, Source

_SCHEMA = """CREATE TABLE IF NOT EXISTS sunshower_versions (
    part text PRIMARY KEY, version integer NOT NULL
); CREATE TABLE IF NOT EXISTS sunshower_offsets (
    id text, topic text, partition integer, settled bigint, done text NOT NULL,
    version bigint NOT NULL, PRIMARY KEY (id, topic, partition)
)"""
_PART = "the offsets"
_KEY = "id = %s AND topic = %s AND partition = %s"
_READ = f"SELECT settled, done, version FROM sunshower_offsets WHERE {_KEY}"  # noqa: S608
# A partition without results may have a row, with version 0: the reader has settled offsets.
_FIRST = """INSERT INTO sunshower_offsets AS old VALUES (%s, %s, %s, NULL, %s, 1)
    ON CONFLICT (id, topic, partition) DO UPDATE SET done = excluded.done, version = 1
    WHERE old.version = 0"""
_NEXT = f"""UPDATE sunshower_offsets SET done = %s, version = version + 1
    WHERE {_KEY} AND version = %s"""  # noqa: S608
_SETTLE = """INSERT INTO sunshower_offsets VALUES (%s, %s, %s, %s, '[]', 0)
    ON CONFLICT (id, topic, partition) DO UPDATE SET settled = excluded.settled"""


class _OfResults(Exception):
    """Carries an error of the user's statement past the conversion of errors."""

    def __init__(self, theirs: Exception) -> None:
        super().__init__(theirs)
        self.theirs = theirs


class PostgresResults:
    """Implements the port `Results`. All of `write` ends 1 s after `answer_within_s`."""

    def __init__(
        self, dsn: str | Secret, id: str, *, answer_within_s: float = ANSWER_WITHIN_S
    ) -> None:
        self._id = id
        self._client = PostgresClient(dsn, f"the offsets of {id!r}", answer_within_s)
        self.setup(_SCHEMA)
        with self._client.db() as db:
            sql = "INSERT INTO sunshower_versions VALUES (%s, %s) ON CONFLICT DO NOTHING"
            db.execute(sql, (_PART, versions.OFFSETS))
            sql = "SELECT version FROM sunshower_versions WHERE part = %s"
            (found,) = db.execute(sql, (_PART,)).fetchone()
        way_out = "use the release that wrote it, or another database"
        versions.check(f"{_PART} in {dsn}", found, versions.OFFSETS, way_out)

    def setup(self, script: str) -> None:
        with self._client.db() as db, db.transaction():
            db.execute(ALONE)
            if script:
                db.execute(script.encode())

    def read(self, source: Source) -> Read:
        with self._client.db() as db:
            row = db.execute(_READ, (self._id, *source)).fetchone()
        if row is None:
            return Read(None, [], 0)
        return Read(row[0], [(first, end) for first, end in json.loads(row[1])], row[2])

    def write(
        self, done: Mapping[Source, tuple[Pairs, int]], results: Callable[[Any], None]
    ) -> None:
        try:
            with self._client.db() as db, db.transaction():
                for source, (pairs, version) in sorted(done.items()):  # in order: no deadlock
                    self._write(db, source, pairs, version)
                self._call(results, db)
        except _OfResults as error:
            raise error.theirs from None

    def settle(self, settled: Mapping[Source, int]) -> None:
        rows = [(self._id, *source, offset) for source, offset in sorted(settled.items())]
        with self._client.db() as db, db.transaction():
            db.cursor().executemany(_SETTLE, rows)

    def close(self) -> None:
        self._client.close()

    def _write(self, db: Any, source: Source, pairs: Pairs, version: int) -> None:
        """Compare and set; locks the row until the transaction ends."""
        key, text = (self._id, *source), json.dumps(pairs)
        if version:
            changed = db.execute(_NEXT, (text, *key, version))
        else:
            changed = db.execute(_FIRST, (*key, text))
        if not changed.rowcount:
            raise WrongVersion(
                f"{source[0]}[{source[1]}] of {self._id!r} has no longer version {version}: "
                "another task has written results of it"
            )

    def _call(self, results: Callable[[Any], None], db: Any) -> None:
        import psycopg

        try:
            results(db)
        except psycopg.Error as error:
            if is_unavailable(error) or db.closed:
                raise
            raise _OfResults(error) from error
