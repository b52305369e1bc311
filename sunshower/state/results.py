"""Stores a reader's results and offsets in one database, in one transaction.

    sunshower_offsets   id, topic, partition → settled, done, version

`topic` is the name of a topic, or "<name>#<id of the topic>": a topic that is created again under
its name has rows of its own.
All below `settled` is done, and the offsets in `done`: JSON, as [[7,9],[12,13]] for 7, 8, 12.
"""

from __future__ import annotations

import json
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sunshower import versions
from sunshower.errors import WrongVersion, user_errors
from sunshower.outages import is_unavailable
from sunshower.secret import Secret
from sunshower.state.backing import ANSWER_WITHIN_S
from sunshower.state.postgres_backing import ALONE, PostgresClient, begun
from sunshower.state.sqlite import Tables, connect, errors, is_of_statement, transaction

_READ = """SELECT settled, done, version FROM sunshower_offsets
    WHERE id = ? AND topic = ? AND partition = ?"""
# A partition without results may have a row, with version 0: the reader has settled offsets.
_FIRST = """INSERT INTO sunshower_offsets AS old VALUES (?, ?, ?, NULL, ?, 1)
    ON CONFLICT (id, topic, partition) DO UPDATE SET done = excluded.done, version = 1
    WHERE old.version = 0"""
_NEXT = """UPDATE sunshower_offsets SET done = ?, version = version + 1
    WHERE id = ? AND topic = ? AND partition = ? AND version = ?"""
_SETTLE = """INSERT INTO sunshower_offsets VALUES (?, ?, ?, ?, '[]', 0)
    ON CONFLICT (id, topic, partition) DO UPDATE SET settled = excluded.settled"""

_SIBLINGS = """SELECT topic, version FROM sunshower_offsets
    WHERE id = ? AND partition = ? AND (topic = ? OR substr(topic, 1, ?) = ?)"""
_MOVED = """DELETE FROM sunshower_offsets WHERE id = ? AND topic = ? AND partition = ?
    AND version = ?"""
_RESETTLE = """UPDATE sunshower_offsets SET settled = ?
    WHERE id = ? AND topic = ? AND partition = ?"""

Pairs = list[tuple[int, int]]
Source = tuple[str, int]  # a topic, see `topic_key`, and a partition number


def topic_key(topic: str, topic_id: str) -> str:
    """The topic column of a row. No name of a topic contains a "#"."""
    return f"{topic}#{topic_id}" if topic_id else topic


class Read(NamedTuple):
    """The progress of a partition."""

    settled: int | None  # all below is done; None: not set
    done: Pairs
    version: int  # the number of writes of results
    moved_from: Source | None = None  # the results are in the row of the topic without its id


class _UserError(Exception):
    """Carries an exception of the user's function past the conversion of the client's errors."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class Results(ABC):
    """A client of the database, for the results and the offsets of one id. Its methods raise
    StoreUnreachable, or StoreError for permanent errors."""

    mark = "?"  # stands for a value in SQL

    def __init__(self, id: str) -> None:
        self._id = id

    @abstractmethod
    def setup(self, script: str) -> None:
        """Run SQL that creates missing tables of the results."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    def _db(self) -> AbstractContextManager[Any]:
        """The connection, whose errors are converted."""

    @abstractmethod
    def _begin(self, db: Any) -> AbstractContextManager[Any]:
        """Run the body in one transaction."""

    @abstractmethod
    def _is_of_user_code(self, error: BaseException, db: Any) -> bool:
        """Whether the user's function caused an error, and not the database."""

    def read(self, source: Source) -> Read:
        """The progress of a partition."""
        with self._db() as db:
            row = db.execute(self._sql(_READ), (self._id, *source)).fetchone()
        if row is None:
            return Read(None, [], 0)
        return Read(row[0], [(first, end) for first, end in json.loads(row[1])], row[2])

    def siblings(self, topic: str, partition: int) -> dict[str, int]:
        """The topic column of each row of this topic or of former ones of that name → version."""
        name = f"{topic}#"
        values = (self._id, partition, topic, len(name), name)
        with self._db() as db:
            return dict(db.execute(self._sql(_SIBLINGS), values).fetchall())

    def read_of_topic(self, topic: str, topic_id: str, partition: int) -> Read:
        """As `read`. A row that was written without the id of the topic counts, if none has an
        id of another topic."""
        source = topic_key(topic, topic_id), partition
        stored = self.read(source)
        if stored.version or not topic_id:
            return stored
        siblings = self.siblings(topic, partition)
        if not siblings.get(topic) or siblings.keys() - {topic, source[0]}:
            return stored
        former = self.read((topic, partition))
        settled = former.settled if stored.settled is None else stored.settled
        return former._replace(settled=settled, moved_from=(topic, partition))

    def write(
        self,
        done: Mapping[Source, tuple[Pairs, int]],
        results: Callable[[Any], None],
        moved_from: Mapping[Source, Source] | None = None,
    ) -> None:
        """Call the user's function `results` with the connection, and store the offsets that its
        rows cover, in one transaction.

        `done`: for each partition the pairs, and the version from which they were derived; that of
        the row in `moved_from`, if there is one, which is removed. Raises WrongVersion if another
        task has written since. Exceptions of `results` are raised
        unchanged, unless the database is damaged or unavailable.
        """
        try:
            with self._db() as db, self._begin(db):
                for source, (pairs, version) in sorted(done.items()):  # in order: no deadlock
                    former = (moved_from or {}).get(source)
                    if former is not None:
                        moved = db.execute(self._sql(_MOVED), (self._id, *former, version))
                        self._check(moved.rowcount, former, version)
                    self._write(db, source, pairs, version if former is None else 0)
                try:
                    results(db)
                except user_errors() as error:
                    if self._is_of_user_code(error, db):
                        raise _UserError(error) from error
                    raise
        except _UserError as carrier:
            raise carrier.error from carrier.error.__cause__

    def settle(self, settled: Mapping[Source, int]) -> None:
        """Store that all offsets below are done, in one transaction; also in the row of a topic
        without its id, if a bolt has written one."""
        rows = [(self._id, *source, offset) for source, offset in sorted(settled.items())]
        with self._db() as db, self._begin(db):
            db.cursor().executemany(self._sql(_SETTLE), rows)
            for id, topic, partition, offset in rows:
                if "#" in topic:
                    name = topic.partition("#")[0]
                    db.execute(self._sql(_RESETTLE), (offset, id, name, partition))

    def _write(self, db: Any, source: Source, pairs: Pairs, version: int) -> None:
        """Compare and set; locks the row until the transaction ends."""
        key, text = (self._id, *source), json.dumps(pairs)
        if version:
            changed = db.execute(self._sql(_NEXT), (text, *key, version))
        else:
            changed = db.execute(self._sql(_FIRST), (*key, text))
        self._check(changed.rowcount, source, version)

    def _check(self, count: int, source: Source, version: int) -> None:
        if not count:
            raise WrongVersion(
                f"{source[0]}[{source[1]}] of {self._id!r} no longer has version {version}: "
                "another task has written results of it"
            )

    def _sql(self, text: str) -> str:
        return text.replace("?", self.mark)


# ---- sqlite results ------------------------------------------------------------------------------

_SCHEMA = """CREATE TABLE IF NOT EXISTS sunshower_offsets (
    id TEXT, topic TEXT, partition INTEGER, settled INTEGER, done TEXT NOT NULL,
    version INTEGER NOT NULL, PRIMARY KEY (id, topic, partition)
) WITHOUT ROWID"""
_OFFSETS = Tables("the offsets", versions.OFFSETS, [_SCHEMA])


class SqliteResults(Results):
    """Results and offsets in a file."""

    def __init__(self, file: Path | str, id: str) -> None:
        super().__init__(id)
        self._file = Path(file)
        with errors(self._file):
            self._connection = connect(self._file, ANSWER_WITHIN_S)
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


# ---- postgres results ----------------------------------------------------------------------------

_POSTGRES_SCHEMA = """CREATE TABLE IF NOT EXISTS sunshower_versions (
    part text PRIMARY KEY, version integer NOT NULL
); CREATE TABLE IF NOT EXISTS sunshower_offsets (
    id text, topic text, partition integer, settled bigint, done text NOT NULL,
    version bigint NOT NULL, PRIMARY KEY (id, topic, partition)
)"""
_PART = "the offsets"


class PostgresResults(Results):
    """Results and offsets in a PostgreSQL. All of `write` ends within 11 s."""

    mark = "%s"

    def __init__(self, dsn: str | Secret, id: str) -> None:
        super().__init__(id)
        self._client = PostgresClient(dsn, f"the offsets of {id!r}", ANSWER_WITHIN_S)
        self.setup(_POSTGRES_SCHEMA)
        with self._client.db() as db:
            sql = "INSERT INTO sunshower_versions VALUES (%s, %s) ON CONFLICT DO NOTHING"
            db.execute(sql, (_PART, versions.OFFSETS))
            sql = "SELECT version FROM sunshower_versions WHERE part = %s"
            (version,) = db.execute(sql, (_PART,)).fetchone()
        remedy = "use the release that wrote it, or another database"
        versions.check(f"{_PART} in {dsn}", version, versions.OFFSETS, remedy)

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
        return begun(db, ANSWER_WITHIN_S)

    def _is_of_user_code(self, error: BaseException, db: Any) -> bool:
        return not (is_unavailable(error) or db.closed)
