"""Permanent errors of stores are StoreError and count as failures; transient ones are outages."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sunshower.errors import StoreError, StoreUnreachable
from sunshower.state.backing import Home, Mark
from sunshower.state.results import SqliteResults
from sunshower.state.sqlite import SqliteBacking, errors
from sunshower.state.sqlite import homes as sqlite_homes
from sunshower.state.sqlite_tree import SqliteTree

HOME = Home("counts", 0)


@pytest.mark.parametrize(
    "open_one", [lambda file: SqliteBacking(file, HOME), SqliteTree, sqlite_homes]
)
def test_a_file_that_is_no_database_is_a_permanent_error(
    tmp_path: Path, open_one: Callable[[Path], Any]
) -> None:
    file = tmp_path / "counts.db"
    file.write_bytes(b"something else " * 100)
    with pytest.raises(StoreError, match="not a database") as caught:
        open_one(file)
    assert not isinstance(caught.value, StoreUnreachable)


@pytest.mark.parametrize("open_one", [lambda file: SqliteBacking(file, HOME), SqliteTree])
def test_a_path_where_no_file_can_be_is_a_permanent_error(
    tmp_path: Path, open_one: Callable[[Path], Any]
) -> None:
    (tmp_path / "file").touch()
    wrong = {tmp_path: "a folder; give a file", tmp_path / "file/x.db": "below what is no folder"}
    for place, expected in wrong.items():
        with pytest.raises(StoreError, match=expected) as caught:
            open_one(place)
        assert not isinstance(caught.value, StoreUnreachable)


def test_an_error_of_the_disk_is_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(os, "stat", silent)
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSTAT
    with pytest.raises(StoreUnreachable, match="disk I/O"), errors(tmp_path / "counts.db"):
        raise error


def test_a_dropped_table_is_a_permanent_error_and_a_lock_is_an_outage(tmp_path: Path) -> None:
    file = tmp_path / "counts.db"
    with (
        closing(SqliteBacking(file, HOME, answer_within_s=0.0)) as backing,
        closing(sqlite3.connect(file, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnreachable, match="locked"):
            backing.put({"1": "1"}, Mark("1", ""), None)
        other.execute("ROLLBACK")
        other.execute("DROP TABLE counts")
        with pytest.raises(StoreError, match="no such table: counts") as caught:
            backing.put({"1": "1"}, Mark("1", ""), None)
        assert not isinstance(caught.value, StoreUnreachable)
        assert backing.mark() is None


def test_a_transaction_that_sqlite_itself_rolled_back_is_an_error_with_its_cause(
    tmp_path: Path,
) -> None:
    file = tmp_path / "tree.db"
    with closing(SqliteTree(file)) as tree, closing(sqlite3.connect(file)) as other:
        tree.create("/a")
        other.execute(
            "CREATE TRIGGER full BEFORE UPDATE OF value ON nodes BEGIN"
            " SELECT RAISE(ROLLBACK, 'there is no room left'); END"
        )
        with pytest.raises(StoreError, match="there is no room left"):
            tree.set("/a", b"x")


def test_a_wrong_statement_of_the_user_is_no_outage(tmp_path: Path) -> None:
    with closing(SqliteResults(tmp_path / "counts.db", "words")) as results:
        for sql, expected in (("INSRT", "syntax error"), ("DELETE FROM countz", "no such table")):
            with pytest.raises(sqlite3.OperationalError, match=expected):
                results.write({("a", 0): ([(0, 1)], 0)}, lambda db, sql=sql: db.execute(sql))
        assert results.read(("a", 0)).version == 0


@pytest.mark.parametrize(
    ("code", "kind"),
    [(sqlite3.SQLITE_CORRUPT, StoreError), (sqlite3.SQLITE_IOERR_WRITE, StoreUnreachable)],
)
def test_file_errors_in_the_users_function_are_raised_as_store_errors(
    tmp_path: Path, code: int, kind: type[StoreError]
) -> None:
    def write(_: sqlite3.Connection) -> None:
        error = sqlite3.DatabaseError("an error of SQLite")
        error.sqlite_errorcode = code
        raise error

    with (
        closing(SqliteResults(tmp_path / "counts.db", "words")) as results,
        pytest.raises(StoreError, match="an error of SQLite") as caught,
    ):
        results.write({("a", 0): ([(0, 1)], 0)}, write)
    assert type(caught.value) is kind


def in_redis(name: str, text: str = "") -> tuple[Any, Exception]:
    exceptions = pytest.importorskip("redis").exceptions
    from sunshower.state import redis_backing

    return redis_backing.errors("redis://x"), getattr(exceptions, name)(text)


def in_postgres(name: str) -> tuple[Any, Exception]:
    exceptions = pytest.importorskip("psycopg").errors
    from sunshower.state import postgres_backing

    return postgres_backing.errors("counts"), getattr(exceptions, name)()


@pytest.mark.parametrize(
    ("store", "error", "is_permanent"),
    [
        (in_redis, ("ResponseError", "WRONGTYPE Operation against a key"), True),
        (in_redis, ("ResponseError", "wrong number of arguments"), True),
        (in_redis, ("DataError",), True),
        (in_redis, ("ResponseError", "MISCONF Redis is configured to"), False),
        (in_redis, ("AuthenticationError",), True),
        (in_redis, ("ReadOnlyError",), False),
        (in_redis, ("ModuleError",), True),
        (in_redis, ("OutOfMemoryError",), False),
        (in_redis, ("ConnectionError",), False),
        (in_redis, ("TimeoutError",), False),
        (in_postgres, ("UndefinedTable",), True),
        (in_postgres, ("StringDataRightTruncation",), True),
        (in_postgres, ("ProgramLimitExceeded",), True),
        (in_postgres, ("UniqueViolation",), True),
        (in_postgres, ("DiskFull",), False),
        (in_postgres, ("AdminShutdown",), False),
        (in_postgres, ("QueryCanceled",), False),
        (in_postgres, ("DeadlockDetected",), False),
        (in_postgres, ("ReadOnlySqlTransaction",), False),
        (in_postgres, ("InternalError_",), True),
        (in_postgres, ("InsufficientPrivilege",), True),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_errors_of_servers_are_permanent_or_outages(
    store: Any, error: tuple[str, ...], is_permanent: bool
) -> None:
    errors, raised = store(*error)
    with pytest.raises(StoreError) as caught, errors:
        raise raised
    assert isinstance(caught.value, StoreUnreachable) is not is_permanent
