"""Stores a reader's results and offsets in one PostgreSQL, in one transaction."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from sunshower import versions
from sunshower.outages import is_unavailable
from sunshower.secret import Secret
from sunshower.state.backing import ANSWER_WITHIN_S
from sunshower.state.postgres_backing import ALONE, PostgresClient, begun
from sunshower.state.results import Results

_SCHEMA = """CREATE TABLE IF NOT EXISTS sunshower_versions (
    part text PRIMARY KEY, version integer NOT NULL
); CREATE TABLE IF NOT EXISTS sunshower_offsets (
    id text, topic text, partition integer, settled bigint, done text NOT NULL,
    version bigint NOT NULL, PRIMARY KEY (id, topic, partition)
)"""
_PART = "the offsets"


class PostgresResults(Results):
    """Results and offsets in a PostgreSQL. All of `write` ends 1 s after `answer_within_s`."""

    mark = "%s"

    def __init__(
        self, dsn: str | Secret, id: str, *, answer_within_s: float = ANSWER_WITHIN_S
    ) -> None:
        super().__init__(id)
        self._answer_within_s = answer_within_s
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
        with self._client.transaction() as db:
            db.execute(ALONE)
            if script:
                db.execute(script.encode())

    def close(self) -> None:
        self._client.close()

    def _db(self) -> AbstractContextManager[Any]:
        return self._client.db()

    def _begin(self, db: Any) -> AbstractContextManager[Any]:
        return begun(db, self._answer_within_s)

    def _is_of_user_code(self, error: BaseException, db: Any) -> bool:
        return not (is_unavailable(error) or db.closed)
