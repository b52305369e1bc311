"""Storage of states in PostgreSQL: a table for each state.

    SELECT key, value::json -> 1 FROM "counts"      values are JSON, as text

One batch of one task is one transaction.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any

from sunshower.errors import ConfigError, StoreError, StoreForbidden, StoreUnreachable
from sunshower.installed import check_packages
from sunshower.outages import is_unavailable
from sunshower.secret import Secret, address, reveal, without_secrets
from sunshower.state.backing import ANSWER_WITHIN_S, Home, Mark, is_there, table_of

_MARKS = """CREATE TABLE IF NOT EXISTS sunshower_marks (
    state text, task integer, word text NOT NULL, journal text NOT NULL, PRIMARY KEY (state, task)
)"""
_VALUES = """CREATE TABLE IF NOT EXISTS {} (
    key text, task integer, value text NOT NULL, PRIMARY KEY (key, task)
)"""
# Concurrent CREATE TABLE statements collide, in spite of IF NOT EXISTS.
ALONE = "SELECT pg_advisory_xact_lock(7357013)"
# Data exceptions (22), integrity constraints (23), a CHECK OPTION (44), a limit such as the size of
# an index row (54), RAISE in a trigger (P0), and a value whose type the column does not take.
_OF_VALUES = ("22", "23", "44", "54", "P0", "42804")
_GRACE_S = 1.0  # lets the server's own statement timeout act first
_NAME_BYTES_MAX = 63  # PostgreSQL truncates longer names, so two states could share a table


def connect(dsn: str | Secret, answer_within_s: float) -> Any:
    """A connection with autocommit. It leaves nothing in the session, which a pooler gives to other
    clients: no setting, and no prepared statement. Raises StoreUnreachable, ConfigError, and
    StoreError without psycopg."""
    check_packages("postgres", "the client of PostgreSQL", "psycopg", error=StoreError)
    import psycopg

    try:
        return psycopg.connect(
            reveal(dsn),
            autocommit=True,
            connect_timeout=max(2, int(answer_within_s)),
            prepare_threshold=None,
        )
    except psycopg.ProgrammingError:  # its text repeats a part of the DSN
        raise ConfigError(
            f"{address(dsn)} is no address of a PostgreSQL, such as postgresql://host/database"
        ) from None


@contextmanager
def bounded(db: Any, answer_within_s: float) -> Iterator[None]:
    """Shut the connection down if the body takes longer than `answer_within_s` + 1 s; psycopg then
    raises OperationalError. The server's own limit does not help if it hangs or is cut off."""
    timer = threading.Timer(answer_within_s + _GRACE_S, _cut, [db])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _cut(db: Any) -> None:
    with suppress(Exception), socket.socket(fileno=os.dup(db.fileno())) as wire:
        wire.shutdown(socket.SHUT_RDWR)


@contextmanager
def errors(what: object) -> Iterator[None]:
    """Convert the client's errors: StoreUnreachable for an outage (outages.py) and for a statement
    timeout; else StoreForbidden, or StoreError, which says whether a value has caused it."""
    import psycopg
    from psycopg import errors as they

    try:
        yield
    except psycopg.Error as error:
        why = without_secrets(str(error))
        if is_unavailable(error) or isinstance(error, they.QueryCanceled):
            raise StoreUnreachable(f"the PostgreSQL with {what} cannot be used: {why}") from error
        forbidden = (they.InsufficientPrivilege, they.InvalidAuthorizationSpecification)
        if isinstance(error, forbidden) or type(error) is psycopg.OperationalError:
            raise StoreForbidden(f"the PostgreSQL with {what} forbids that: {why}") from error
        text = f"the PostgreSQL with {what} refuses that: {why}"
        raise StoreError(text, of_value=_is_of_value(error)) from error


def _is_of_value(error: Any) -> bool:
    """Whether a value or a row causes an error of psycopg, and not the statement."""
    import psycopg

    state = getattr(error, "sqlstate", None)
    if state is None:  # raised by the client: no adapter for a type, a zero byte in a text
        return isinstance(error, psycopg.DataError | psycopg.ProgrammingError)
    return str(state).startswith(_OF_VALUES)


class PostgresClient:
    """A connection that is opened when it is needed, and again after an outage; `what` is stored
    there, for messages."""

    def __init__(self, dsn: str | Secret, what: object, answer_within_s: float) -> None:
        self._dsn = dsn
        self._what = what
        self._answer_within_s = answer_within_s
        self._connection: Any = None

    @contextmanager
    def db(self) -> Iterator[Any]:
        """The connection, for statements that together end 1 s after `answer_within_s`."""
        try:
            with errors(self._what):
                if self._connection is None or self._connection.closed:
                    self._connection = connect(self._dsn, self._answer_within_s)
                with bounded(self._connection, self._answer_within_s):
                    yield self._connection
        except StoreUnreachable:
            self.close()  # the next call reconnects: after a fail-over, to another server
            raise

    @contextmanager
    def transaction(self, **settings: str) -> Iterator[Any]:
        """The connection, in a transaction with these settings, and with the time limit on the
        server too: it then holds no lock any more."""
        with self.db() as db, begun(db, self._answer_within_s, **settings):
            yield db

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


@contextmanager
def begun(db: Any, answer_within_s: float, **settings: str) -> Iterator[None]:
    """A transaction with settings, and a time limit for each statement."""
    settings["statement_timeout"] = str(int(answer_within_s * 1000))
    calls = ", ".join(["set_config(%s, %s, true)"] * len(settings))
    with db.transaction():
        db.execute(f"SELECT {calls}".encode(), [*chain.from_iterable(settings.items())])
        yield


class PostgresBacking:
    """Implements the port `Backing`. It reconnects after an outage; a call to a server that hangs
    ends 1 s after `answer_within_s`."""

    def __init__(
        self, dsn: str | Secret, home: Home, *, answer_within_s: float = ANSWER_WITHIN_S
    ) -> None:
        self._home = home
        if len(home.state.encode()) > _NAME_BYTES_MAX:
            raise ConfigError(
                f"{home.state!r} is no name for a table of PostgreSQL, which has {_NAME_BYTES_MAX} "
                "bytes at most: give the state another one with `name`"
            )
        self._table = table_of(home)
        self._client = PostgresClient(dsn, home, answer_within_s)
        self._db = self._client.db
        with self._client.transaction() as db:
            db.execute(ALONE)
            db.execute(_MARKS)
            db.execute(_VALUES.format(self._table).encode())

    def mark(self) -> Mark | None:
        sql = "SELECT word, journal FROM sunshower_marks WHERE state = %s AND task = %s"
        with self._db() as db:
            row = db.execute(sql, self._home).fetchone()
        return Mark(*row) if row else None

    def get(self, keys: Sequence[str]) -> list[str | None]:
        chosen = "WHERE task = %s AND key = ANY(%s)"
        sql = f"SELECT key, value FROM {self._table} {chosen}"  # noqa: S608
        with self._db() as db:
            texts = dict(db.execute(sql.encode(), (self._home.task, list(keys))).fetchall())
        return [texts.get(key) for key in keys]

    def put(self, changes: Mapping[str, str | None], mark: Mark, seen: str | None) -> None:
        with self._client.transaction() as db:
            if self._compare_and_set(db, mark, seen):
                self._write(db, changes)

    def items(self) -> Iterator[tuple[str, str]]:
        sql = f"SELECT key, value FROM {self._table} WHERE task = %s"  # noqa: S608
        with self._db() as db:
            rows = db.execute(sql.encode(), (self._home.task,)).fetchall()
        yield from rows

    def count(self) -> None:
        """Not known here."""

    def close(self) -> None:
        self._client.close()

    def _compare_and_set(self, db: Any, mark: Mark, seen: str | None) -> bool:
        """Write the mark; False if it is stored already. Raises WrongVersion."""
        if seen is None:
            sql = "INSERT INTO sunshower_marks VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"
            done = db.execute(sql, (*self._home, *mark))
        else:
            sql = (
                "UPDATE sunshower_marks SET word = %s, journal = %s"
                " WHERE state = %s AND task = %s AND word = %s"
            )
            done = db.execute(sql, (*mark, *self._home, seen))
        if done.rowcount:
            return True
        sql = "SELECT word FROM sunshower_marks WHERE state = %s AND task = %s"
        row = db.execute(sql, self._home).fetchone()
        return not is_there(self._home, row and row[0], mark, seen)

    def _write(self, db: Any, changes: Mapping[str, str | None]) -> None:
        task = self._home.task
        new = [(key, value) for key, value in changes.items() if value is not None]
        gone = [key for key, value in changes.items() if value is None]
        if new:
            sql = (
                f"INSERT INTO {self._table} SELECT key, %s, value"  # noqa: S608
                " FROM unnest(%s::text[], %s::text[]) AS new (key, value)"
                " ON CONFLICT (key, task) DO UPDATE SET value = excluded.value"
            )
            keys, values = zip(*new, strict=True)
            db.execute(sql.encode(), (task, list(keys), list(values)))
        if gone:
            sql = f"DELETE FROM {self._table} WHERE task = %s AND key = ANY(%s)"  # noqa: S608
            db.execute(sql.encode(), (task, gone))


def homes(dsn: str | Secret) -> list[Home]:
    """All homes with a mark, in order."""
    with errors("all states"), connect(dsn, ANSWER_WITHIN_S) as db, bounded(db, ANSWER_WITHIN_S):
        db.execute(_MARKS)
        rows = db.execute("SELECT state, task FROM sunshower_marks ORDER BY state, task")
        return sorted(Home(*row) for row in rows)
