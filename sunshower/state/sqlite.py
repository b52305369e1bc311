"""SQLite files as stores: connections for concurrent processes, transactions, error conversion."""

from __future__ import annotations

import errno
import os
import platform
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path, PurePath
from typing import ClassVar, Self
from zlib import crc32

from sunshower import versions
from sunshower.arguments import check_all
from sunshower.errors import ConfigError, StoreError, StoreUnreachable
from sunshower.outages import is_unavailable
from sunshower.state.backing import ANSWER_WITHIN_S, Home, Mark, is_there, table_of

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


_folder = ContextVar[Path | None]("the folder of all files", default=None)


@contextmanager
def all_files_in(folder: Path) -> Iterator[None]:
    """Put each SQLite file that is declared meanwhile into `folder`, wherever it was declared:
    simulated runs of one program have files of their own."""
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


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
        path = Path(self.file).absolute()
        if (folder := _folder.get()) is not None:
            path = folder / f"{crc32(bytes(path.parent)):08x}-{path.name}"
        object.__setattr__(self, "file", path)
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

    def make(self, db: sqlite3.Connection, file: Path) -> None:
        """Create the tables. Raises VersionMismatch for those of another release. If there is
        nothing to do, this takes no lock and waits for no writer."""
        if self._is_there(db, file):
            return
        with transaction(db):
            for statement in (*self.schema, _VERSIONS):
                db.execute(statement)
            if not self._is_there(db, file):
                sql = "INSERT INTO sunshower_versions VALUES (?, ?)"
                db.execute(sql, (self.part, self.version))

    def _is_there(self, db: sqlite3.Connection, file: Path) -> bool:
        if not _has_table(db, "sunshower_versions"):
            return False
        sql = "SELECT version FROM sunshower_versions WHERE part = ?"
        row = db.execute(sql, (self.part,)).fetchone()
        if row is not None:
            remedy = "use the release that wrote it, or another file"
            versions.check(f"{self.part} in {file}", int(row[0]), self.version, remedy)
        return row is not None


def _has_table(db: sqlite3.Connection, name: str) -> bool:
    sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return db.execute(sql, (name,)).fetchone() is not None


# ---- sqlite backing ------------------------------------------------------------------------------
# Storage of states in a SQLite file: a table for each state, for the processes of one machine.
#
#     SELECT key, value FROM "counts"      "storm" | [7,3,2]      values are JSON
#
# One batch of one task is one transaction, which is on disk when `put` returns.

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
        texts: dict[str, str] = {}
        with errors(self._file):
            for start in range(0, len(keys), _AT_ONCE):
                part = keys[start : start + _AT_ONCE]
                marks = ",".join("?" * len(part))
                sql = f"{self._select} WHERE key IN ({marks}) AND task = ?"
                texts.update(self._db.execute(sql, (*part, self._home.task)))
        return [texts.get(key) for key in keys]

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
        table = _table(self._db, self._home.state)
        if table != self._home.state:
            raise ConfigError(
                f"{self._file}: there is a table {table!r} already, and SQLite takes its name and "
                f"{self._home.state!r} for one; give the state another one with `name`"
            )

    def _write(self, changes: Mapping[str, str | None]) -> None:
        task = self._home.task
        insert = f"INSERT OR REPLACE INTO {self._table} VALUES "  # noqa: S608
        rows = sorted((key, value) for key, value in changes.items() if value is not None)
        several = insert + ",".join([f"(?, {task}, ?)"] * _ROWS_AT_ONCE)
        one_by_one = len(rows) - len(rows) % _ROWS_AT_ONCE
        for start in range(0, one_by_one, _ROWS_AT_ONCE):
            part = rows[start : start + _ROWS_AT_ONCE]
            self._db.execute(several, [*chain.from_iterable(part)])
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
            (rows,) = self._db.execute(sql, (self._home.task,)).fetchone()
        return int(rows)

    def close(self) -> None:
        self._db.close()


def _table(db: sqlite3.Connection, name: str) -> str | None:
    """The actual name of a table, compared without case as SQLite does; None if there is none."""
    sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE"
    row = db.execute(sql, (name,)).fetchone()
    return row and str(row[0])


# ---- durable files -------------------------------------------------------------------------------


def sync_path(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk. Raises
    OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ---- new file ------------------------------------------------------------------------------------


class NewFile:
    """A file that is written beside its place, and gets its name with `publish`, which replaces no
    other file. Only this user can read it.

    As a context manager it is removed at the end, unless it was published, or `leave` was called.
    The constructor raises FileExistsError if a file of this name, or an unfinished one, is there;
    like all methods, any other OSError if the folder or the disk does not allow it.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.unfinished = path, path.with_name(f".{path.name}.unfinished")
        self._stays = False
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        os.close(os.open(self.unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))

    def write(self, data: bytes) -> None:
        """Write the content to the disk, not under its name yet."""
        self.unfinished.write_bytes(data)
        sync_path(self.unfinished)

    def publish(self) -> None:
        """Give the file its name. Raises FileExistsError if another one has it by now."""
        try:
            os.link(self.unfinished, self.path)  # unlike a rename, it replaces nothing
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            self.unfinished.rename(self.path)
        self.unfinished.unlink(missing_ok=True)
        sync_path(self.path.parent)

    def leave(self) -> None:
        """Do not remove the unfinished file at the end."""
        self._stays = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if not self._stays:
            with suppress(OSError):
                self.unfinished.unlink(missing_ok=True)
