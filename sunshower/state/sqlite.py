"""SQLite files as stores: connections for concurrent processes, transactions, error conversion."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from sunshower.errors import StoreError, StoreUnreachable
from sunshower.outages import is_unavailable

_AGAIN_S = 0.01

# Also raised while a file system is not mounted, or mounted read-only after an error. For files
# of user code, outages.py treats these codes as a wrong path.
_NOT_MOUNTED = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}
# Errors of the statement, not of the file.
_WRONG = {
    *(sqlite3.SQLITE_ERROR, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_TOOBIG),
    *(sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH),
}


@contextmanager
def errors(file: Path, theirs: Sequence[BaseException] = ()) -> Iterator[None]:
    """Convert SQLite's and the system's errors: StoreUnreachable for an outage (outages.py), else
    StoreError. Errors in `theirs` are raised unchanged."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        if any(error is one for one in theirs):
            raise
        if os.path.isdir(file):  # False where Path.is_dir would raise
            raise StoreError(f"{file} is a folder; give a file, such as {file}/store.db") from error
        if isinstance(error, FileExistsError | NotADirectoryError):
            raise StoreError(f"{file} is below what is no folder: {error}") from error
        if is_unavailable(error) or _code(error) in _NOT_MOUNTED:
            raise StoreUnreachable(f"{file} cannot be used as a store: {error}") from error
        raise StoreError(
            f"{file} cannot keep that, now or later: {error}. If it is damaged, restore it, or "
            "remove it to begin anew"
        ) from error


def is_of_statement(error: Exception) -> bool:
    """Whether the statement caused the error, not the file."""
    return _code(error) is None or _code(error) in _WRONG


def _code(error: Exception) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return code if code is None else code & 0xFF


def connect(file: Path, answer_within_s: float) -> sqlite3.Connection:
    """A connection with explicit transactions that survive a power failure."""
    file.parent.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(file, answer_within_s, isolation_level=None, check_same_thread=False)
    write_ahead(db, answer_within_s)
    db.execute("PRAGMA synchronous = FULL")
    return db


def write_ahead(db: sqlite3.Connection, within_s: float) -> None:
    """Switch to WAL for concurrent readers. SQLite's busy timeout does not cover this statement."""
    until_s = time.monotonic() + within_s
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > until_s:
                raise
        time.sleep(_AGAIN_S)


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Run the body in one transaction."""
    if db.in_transaction:  # an earlier ROLLBACK failed on the disk
        db.execute("ROLLBACK")
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            if db.in_transaction:
                db.execute("ROLLBACK")
        raise
