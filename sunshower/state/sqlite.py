"""SQLite files as stores: connections for concurrent processes, transactions, error conversion."""

from __future__ import annotations

import os
import platform
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import ClassVar

from sunshower import versions
from sunshower.arguments import check_all
from sunshower.errors import ConfigError, StoreError, StoreUnreachable
from sunshower.outages import is_unavailable

_AGAIN_S = 0.01
_VERSIONS = """CREATE TABLE IF NOT EXISTS sunshower_versions (
    part TEXT PRIMARY KEY, version INTEGER NOT NULL
) WITHOUT ROWID"""

# Also raised while a file system is not mounted, or mounted read-only after an error. For files
# of user code, outages.py treats these codes as a wrong path.
_NOT_MOUNTED = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}
_OF_VALUES = {sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH}
# Errors of the statement, not of the file.
_WRONG = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_SCHEMA, *_OF_VALUES}


def machine() -> str:
    """Identifies the running kernel; containers of one machine share it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()


@dataclass(frozen=True)
class SqliteFile:
    """A SQLite file that all processes of the topology must share. Opening it on another machine
    than the one where it was declared raises ConfigError, with the advice of the subclass."""

    instead: ClassVar[str]  # what a topology on several machines needs: "give …"
    file: str | PurePath
    _machine: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_all(self, {}, f"{type(self).__name__}: ")
        # Workers have another working directory.
        object.__setattr__(self, "file", Path(self.file).absolute())
        object.__setattr__(self, "_machine", machine())

    @property
    def path(self) -> Path:
        """The file. Raises ConfigError on another machine: there, the same path is another file,
        and SQLite does not work over a network."""
        if self._machine != machine():
            raise ConfigError(
                f"{self.file} is a file of the machine where the topology was declared, and this "
                f"task runs on another one, {platform.node()}. Use a server that all machines "
                f"reach: {self.instead}; or run all workers on that machine"
            )
        return Path(self.file)


@contextmanager
def errors(file: Path) -> Iterator[None]:
    """Convert SQLite's and the system's errors: StoreUnreachable for an outage (outages.py), else
    StoreError."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        if os.path.isdir(file):  # False where Path.is_dir would raise
            raise StoreError(f"{file} is a folder; give a file, such as {file}/store.db") from error
        if isinstance(error, FileExistsError | NotADirectoryError):
            raise StoreError(f"{file} is below what is no folder: {error}") from error
        if is_unavailable(error) or _code(error) in _NOT_MOUNTED:
            raise StoreUnreachable(f"{file} cannot be used as a store: {error}") from error
        raise StoreError(
            f"{file} cannot store that: {error}. If it is damaged, restore it, or "
            "remove it to start over",
            of_value=_code(error) in _OF_VALUES or isinstance(error, sqlite3.DataError),
        ) from error


def is_of_statement(error: BaseException) -> bool:
    """Whether the statement caused the error, not the file."""
    return _code(error) is None or _code(error) in _WRONG


def _code(error: BaseException) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return code if code is None else code & 0xFF


def connect(file: Path, answer_within_s: float) -> sqlite3.Connection:
    """A connection with explicit transactions that survive a power failure."""
    file.parent.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(
        file, timeout=answer_within_s, isolation_level=None, check_same_thread=False
    )
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


@dataclass(frozen=True)
class Tables:
    """A part of a file: its tables, of one version."""

    part: str
    version: int
    schema: Sequence[str]  # statements that create what is missing
    first: str  # one of the tables: there is a part without a version, 1, if it exists
    upgrades: Mapping[int, Sequence[str]] = field(default_factory=dict)  # version → what leads on

    def make(self, db: sqlite3.Connection, file: Path) -> None:
        """Create or upgrade the tables. Raises VersionMismatch for those of a later release. If
        there is nothing to do, this takes no lock and waits for no writer."""
        if self._found(db) == self.version:
            return
        with transaction(db):
            found = self._found(db) or (1 if _has_table(db, self.first) else self.version)
            if found > self.version:
                way_out = "use the release that wrote it, or another file"
                versions.check(f"{self.part} in {file}", found, self.version, way_out)
            for older in range(found, self.version):
                for statement in self.upgrades[older]:
                    db.execute(statement)
            for statement in (*self.schema, _VERSIONS):
                db.execute(statement)
            sql = "INSERT OR REPLACE INTO sunshower_versions VALUES (?, ?)"
            db.execute(sql, (self.part, self.version))

    def _found(self, db: sqlite3.Connection) -> int | None:
        if not _has_table(db, "sunshower_versions"):
            return None
        sql = "SELECT version FROM sunshower_versions WHERE part = ?"
        row = db.execute(sql, (self.part,)).fetchone()
        return row and int(row[0])


def _has_table(db: sqlite3.Connection, name: str) -> bool:
    sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return db.execute(sql, (name,)).fetchone() is not None
