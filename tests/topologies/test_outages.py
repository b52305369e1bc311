"""Exceptions that are outages, and others: of Python, Sunshower and the client libraries."""

from __future__ import annotations

import errno
import gzip
import importlib
import json
import socket
import sqlite3
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from sunshower.errors import KafkaUnreachable, SparkUnavailable, StoreError, StoreUnreachable
from sunshower.outages import KAFKA_CODES, is_unavailable


class HTTPError(OSError):
    """Like requests.HTTPError, which is an IOError."""


class Banned(ConnectionError):
    """A user's class, which is no outage."""


def sqlite_error(code: int | None, text: str = "a text of SQLite") -> sqlite3.Error:
    error = sqlite3.OperationalError(text)
    if code is not None:
        error.sqlite_errorcode = code
    return error


def locked_error() -> sqlite3.Error:
    """Return the error that SQLite raises for a locked database."""
    name = "file:locked?mode=memory&cache=shared"
    owner, other = (
        sqlite3.connect(name, timeout=0.0, uri=True, isolation_level=None) for _ in range(2)
    )
    owner.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError) as raised:
        other.execute("BEGIN IMMEDIATE")
    owner.close()
    other.close()
    return raised.value


def full_error() -> sqlite3.Error:
    """Return the error that SQLite raises for a full database."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.execute("CREATE TABLE t (x)")
    db.execute("PRAGMA max_page_count = 2")
    with pytest.raises(sqlite3.OperationalError) as raised:
        db.execute("INSERT INTO t VALUES (zeroblob(100000))")
    db.close()
    return raised.value


@pytest.mark.parametrize(
    "error",
    [
        *(StoreUnreachable("x"), KafkaUnreachable("x"), SparkUnavailable("x")),
        *(ConnectionError("x"), ConnectionRefusedError(errno.ECONNREFUSED, "x")),
        *(ConnectionResetError("x"), ConnectionAbortedError("x"), BrokenPipeError("x")),
        *(OSError(errno.ENOSPC, "x"), OSError(errno.EDQUOT, "x"), OSError(errno.EIO, "x")),
        *(OSError(errno.ESTALE, "x"), OSError(errno.ENETUNREACH, "x")),
        *(OSError(errno.EHOSTUNREACH, "x"), OSError(errno.ETIMEDOUT, "x")),
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
        ssl.SSLEOFError(8, "EOF occurred in violation of protocol"),
        *(sqlite_error(sqlite3.SQLITE_BUSY), sqlite_error(sqlite3.SQLITE_FULL), locked_error()),
        full_error(),
        *(sqlite_error(sqlite3.SQLITE_LOCKED), sqlite_error(sqlite3.SQLITE_IOERR_WRITE)),
    ],
    ids=repr,
)
def test_an_error_of_python_or_sunshower_is_an_outage(error: Exception) -> None:
    assert is_unavailable(error)


def json_error() -> Exception:
    with pytest.raises(ValueError, match="Expecting") as raised:
        json.loads("{")
    return raised.value


@pytest.mark.parametrize(
    "error",
    [
        *(StoreError("x"), TypeError("x"), ValueError("x"), KeyError("x"), json_error()),
        *(FileNotFoundError(errno.ENOENT, "x"), PermissionError(errno.EACCES, "x")),
        *(OSError("x"), OSError(errno.ENOENT, "x"), OSError(errno.EROFS, "x")),
        *(IsADirectoryError("x"), HTTPError(errno.EIO, "x"), HTTPError("404")),
        *(gzip.BadGzipFile("x"), Banned("x"), TimeoutError("x")),
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        ssl.SSLCertVerificationError(1, "certificate verify failed"),
        *(sqlite_error(None), sqlite_error(sqlite3.SQLITE_ERROR, "no such table: t")),
        *(sqlite_error(sqlite3.SQLITE_CANTOPEN), sqlite3.IntegrityError("x")),
        *(sqlite3.ProgrammingError("Cannot operate on a closed database."), MemoryError()),
    ],
    ids=repr,
)
def test_an_error_that_only_looks_like_an_outage_is_no_outage(error: Exception) -> None:
    assert not is_unavailable(error)


def test_types_that_the_user_declares_are_outages_with_their_subclasses() -> None:
    assert is_unavailable(Banned("x"), [Banned])
    assert is_unavailable(Banned("x"), [ConnectionError])
    assert not is_unavailable(KeyError("x"), [ConnectionError])


POSTGRES = [
    ("errors.AdminShutdown", "", True),
    ("errors.CrashShutdown", "", True),
    ("errors.CannotConnectNow", "", True),
    ("errors.TooManyConnections", "", True),
    ("errors.DiskFull", "", True),
    ("errors.OutOfMemory", "", True),
    ("errors.IoError", "", True),
    ("errors.ConnectionFailure", "", True),
    ("errors.ConnectionTimeout", "", True),
    ("errors.ReadOnlySqlTransaction", "", True),
    ("errors.DeadlockDetected", "", True),
    ("errors.SerializationFailure", "", True),
    ("errors.LockNotAvailable", "", True),
    ("OperationalError", "connection failed: Connection refused", True),
    ("OperationalError", "the connection is closed", True),
    ("OperationalError", "FATAL:  the database system is starting up", True),
    ("OperationalError", 'FATAL:  password authentication failed for user "x"', False),
    ("OperationalError", 'FATAL:  database "x" does not exist', False),
    ("OperationalError", 'FATAL:  role "x" does not exist', False),
    ("OperationalError", "SSL error: certificate verify failed", False),
    ("errors.DatabaseDropped", "", False),
    ("errors.QueryCanceled", "", False),
    ("errors.InvalidPassword", "", False),
    ("errors.InsufficientPrivilege", "", False),
    ("errors.UndefinedTable", "", False),
    ("errors.UniqueViolation", "", False),
    ("errors.StringDataRightTruncation", "", False),
    ("errors.InternalError_", "", False),
    ("InterfaceError", "the cursor is closed", False),
]
REDIS = [
    ("ConnectionError", "", True),
    ("TimeoutError", "", True),
    ("BusyLoadingError", "", True),
    ("MaxConnectionsError", "", True),
    ("ReadOnlyError", "", True),
    ("OutOfMemoryError", "", True),
    ("ClusterDownError", "x", True),
    ("MasterDownError", "x", True),
    ("SlotNotCoveredError", "", True),
    ("TryAgainError", "", True),
    ("ResponseError", "MISCONF Redis is configured to save RDB snapshots", True),
    ("ResponseError", "NOREPLICAS Not enough good replicas to write.", True),
    ("ResponseError", "WRONGTYPE Operation against a key", False),
    ("AuthenticationError", "", False),
    ("AuthorizationError", "", False),
    ("NoPermissionError", "", False),
    ("DataError", "", False),
    ("WatchError", "", False),
    ("LockNotOwnedError", "", False),
    ("InvalidResponse", "", False),
    ("CrossSlotTransactionError", "", False),
    ("MovedError", "12182 127.0.0.1:7000", False),
]
KAZOO = [
    ("exceptions.ConnectionLoss", True),
    ("exceptions.ConnectionDropped", True),
    ("exceptions.OperationTimeoutError", True),
    ("exceptions.SessionExpiredError", True),
    ("exceptions.ConnectionClosedError", True),
    ("exceptions.SessionMovedError", True),
    ("exceptions.NotReadOnlyCallError", True),
    ("retry.RetryFailedError", True),
    ("handlers.threading.KazooTimeoutError", True),
    ("exceptions.NoNodeError", False),
    ("exceptions.NodeExistsError", False),
    ("exceptions.BadVersionError", False),
    ("exceptions.NoAuthError", False),
    ("exceptions.AuthFailedError", False),
    ("exceptions.QuotaExceededError", False),
]


def client_errors() -> Iterator[Any]:
    """Yield library, class, text, and whether this error is an outage."""
    for name, text, is_outage in POSTGRES:
        yield "psycopg", name, text, is_outage
    for name, text, is_outage in REDIS:
        yield "redis", f"exceptions.{name}", text, is_outage
    for name, is_outage in KAZOO:
        yield "kazoo", name, "", is_outage


@pytest.mark.parametrize(("library", "name", "text", "is_outage"), [*client_errors()])
def test_an_error_of_a_client_library_is_classified(
    library: str, name: str, text: str, is_outage: bool
) -> None:
    folder, _, kind = f"{library}.{name}".rpartition(".")
    pytest.importorskip(library)
    error = getattr(importlib.import_module(folder), kind)(text)
    assert is_unavailable(error) is is_outage


def test_errors_of_kafka_are_classified_by_their_codes() -> None:
    kafka = pytest.importorskip("confluent_kafka")
    codes = {name: getattr(kafka.KafkaError, name) for name in dir(kafka.KafkaError)}
    names = {
        name
        for name, code in codes.items()
        if name.isupper() and is_unavailable(kafka.KafkaException(kafka.KafkaError(code)))
    }
    assert names == KAFKA_CODES  # each code of the table exists in the client
    assert not is_unavailable(kafka.KafkaException("no KafkaError"))
    assert not is_unavailable(kafka.KafkaException())
