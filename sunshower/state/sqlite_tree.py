"""A tree in a SQLite file, for the processes of one machine, without a server."""

from __future__ import annotations

import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sunshower import versions
from sunshower.errors import NoNode, StoreError
from sunshower.state.backing import ANSWER_WITHIN_S
from sunshower.state.sqlite import Tables, errors, transaction, write_ahead
from sunshower.state.tree import (
    Node,
    SessionState,
    above,
    below_ephemeral,
    check,
    check_version,
    has_children,
    no_node,
    node_exists,
    parent,
)

_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS nodes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, -- another one when a node is made again
    path TEXT NOT NULL UNIQUE, parent TEXT NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL,
    owner TEXT -- the session of an ephemeral node
)""",
    "CREATE INDEX IF NOT EXISTS children ON nodes (parent)",
    """CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY, beats INTEGER NOT NULL, timeout_s REAL NOT NULL
)""",
)
_TABLES = Tables("the tree", versions.TREE, _SCHEMA)
_LOOK_EVERY_S = 0.05
_BEATS = 4  # heartbeats within a session timeout


@dataclass
class _Watch:
    path: str
    changed: Callable[[], None]
    seen: object  # what the store had there when `changed` was last called


class SilentSessions:
    """Finds sessions without heartbeats: each heartbeat counts up, and this measures by the clock
    of its own process how long a count stays the same. So it does not matter whether clocks agree,
    and what time they show.

    `look_s`: how often it looks. Time in which it was stopped itself, when it could see nobody's
    heartbeats, does not count.
    """

    def __init__(self, look_s: float) -> None:
        self._look_s = look_s
        self._looked_s = 0.0
        self._seen: dict[str, tuple[int, float]] = {}  # session → its count, for how long

    def ended(self, sessions: Iterable[tuple[str, int, float]], now: float) -> list[str]:
        """The sessions (id, heartbeats, timeout) that were silent for longer than their timeout.
        `now`: on any clock that is never set."""
        passed_s = min(now - self._looked_s, 2 * self._look_s)
        before, self._seen, self._looked_s = self._seen, {}, now
        sessions_ended = []
        for session, beats, timeout_s in sessions:
            known, silent_s = before.get(session, (None, 0.0))
            self._seen[session] = beats, silent_s + passed_s if known == beats else 0.0
            if self._seen[session][1] > timeout_s:
                sessions_ended.append(session)
        return sessions_ended


class SqliteTree:
    """Implements the port `Tree`. A thread sends the session's heartbeats, and looks for changes
    every 50 ms if there are watches.
    A session ends when another client has seen no heartbeat of it for its `session_timeout_s`.
    """

    def __init__(
        self,
        file: Path | str,
        *,
        session_timeout_s: float = 10.0,
        answer_within_s: float = ANSWER_WITHIN_S,
    ) -> None:
        self._file = Path(file)
        self._session_timeout_s = session_timeout_s
        self._silent = SilentSessions(session_timeout_s / _BEATS)
        self._answer_within_s = answer_within_s
        self._lock = threading.Lock()
        self._watches: list[_Watch] = []
        self._listeners: list[Callable[[SessionState], None]] = []
        self._wake = threading.Event()
        self._closed = self._lost = False
        self.session = ""
        with self._errors():
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._db = self._open()
            write_ahead(self._db, answer_within_s)
            _TABLES.make(self._db, self._file)
        with self._writing() as db:
            self._beat(db)
        self._lost = False  # this was the first session
        self._thread = threading.Thread(target=self._look_after, name="sqlite-tree", daemon=True)
        self._thread.start()

    def get(self, path: str) -> Node | None:
        sql = "SELECT value, version, owner IS NOT NULL FROM nodes WHERE path = ?"
        with self._reading() as db:
            row = db.execute(sql, (check(path),)).fetchone()
        return row and Node(row[0], row[1], bool(row[2]))

    def children(self, path: str) -> list[str]:
        with self._reading() as db:
            rows = _children(db, path if path == "/" else check(path))
        return sorted(child.rpartition("/")[2] for _, child in rows)

    def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False) -> None:
        with self._writing() as db:
            _make_above(db, check(path))
            if ephemeral:
                self._beat(db)  # nodes of an expired session would never be removed
            try:
                _insert(db, path, value, self.session if ephemeral else None)
            except sqlite3.IntegrityError as error:
                raise node_exists(path) from error

    def set(self, path: str, value: bytes, version: int | None = None) -> int:
        with self._writing() as db:
            new = _version(db, path, version) + 1
            db.execute("UPDATE nodes SET value = ?, version = ? WHERE path = ?", (value, new, path))
        return new

    def put(self, path: str, value: bytes, beside: str | None = None) -> None:
        sql = "UPDATE nodes SET value = ?, version = version + 1 WHERE path = ?"
        with self._writing() as db:
            if beside is not None:
                _version(db, beside, None)
            if not db.execute(sql, (value, check(path))).rowcount:
                _make_above(db, path)
                _insert(db, path, value, None)

    def delete(self, path: str, version: int | None = None) -> None:
        with self._writing() as db:
            _version(db, path, version)
            if _children(db, path):
                raise has_children(path)
            db.execute("DELETE FROM nodes WHERE path = ?", (path,))

    def withdraw(self, path: str, beside: str | None = None) -> None:
        sql = "DELETE FROM nodes WHERE path = ? AND owner = ?"
        with suppress(NoNode), self._writing() as db:
            if beside is not None:
                _version(db, beside, None)
            db.execute(sql, (check(path), self.session))

    def watch(self, path: str, changed: Callable[[], None]) -> None:
        with self._reading() as db:
            seen = _look(db, check(path))
        self._watches.append(_Watch(path, changed, seen))
        self._wake.set()

    def listen(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._wake.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        with self._writing() as db:
            _end(db, [self.session])
        self._db.close()

    # ---- the thread -----------------------------------------------------------------------------

    def _look_after(self) -> None:
        """Send heartbeats, end expired sessions, and call watches and listeners."""
        with self._errors():
            mine = self._open()
        beat_s = self._session_timeout_s / _BEATS
        due_s, seen = time.monotonic() + beat_s, -1
        while True:
            wait_s = max(due_s - time.monotonic(), 0.0)
            self._wake.wait(min(wait_s, _LOOK_EVERY_S) if self._watches else wait_s)
            self._wake.clear()
            if self._closed:
                break
            with suppress(StoreError), self._errors():
                if time.monotonic() >= due_s:
                    due_s = time.monotonic() + beat_s
                    with self._writing() as db:
                        self._beat(db)
                self._tell_of_session()
                if (now := mine.execute("PRAGMA data_version").fetchone()[0]) != seen:
                    for watch in [*self._watches]:
                        if (content := _look(mine, watch.path)) != watch.seen:
                            watch.seen = content
                            watch.changed()
                    seen = now
        mine.close()

    def _beat(self, db: sqlite3.Connection) -> None:
        """Renew the session, or begin a new one, and end expired sessions."""
        sql = "UPDATE sessions SET beats = beats + 1 WHERE id = ?"
        if not db.execute(sql, (self.session,)).rowcount:
            self._lost, self.session = True, uuid.uuid4().hex
            self._wake.set()
            sql = "INSERT INTO sessions VALUES (?, 0, ?)"
            db.execute(sql, (self.session, self._session_timeout_s))
        rows = db.execute("SELECT id, beats, timeout_s FROM sessions").fetchall()
        _end(db, self._silent.ended(rows, time.monotonic()))

    def _tell_of_session(self) -> None:
        if self._lost:
            self._lost = False
            for session in (SessionState.LOST, SessionState.CONNECTED):
                for listener in [*self._listeners]:
                    listener(session)

    # ---- the file -------------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(
            self._file,
            timeout=self._answer_within_s,
            isolation_level=None,
            check_same_thread=False,
        )

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._errors(), self._lock:
            yield self._db

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._errors(), self._lock, transaction(self._db):
            yield self._db

    def _errors(self) -> AbstractContextManager[None]:
        return errors(self._file)


def _make_above(db: sqlite3.Connection, path: str) -> None:
    """Create the missing nodes above a path."""
    for ancestor in above(path):
        owner_row = db.execute("SELECT owner FROM nodes WHERE path = ?", (ancestor,)).fetchone()
        if owner_row is None:
            _insert(db, ancestor, b"", None)
        elif owner_row[0]:
            raise below_ephemeral(path)


def _insert(db: sqlite3.Connection, path: str, value: bytes, owner: str | None) -> None:
    sql = "INSERT INTO nodes (path, parent, value, version, owner) VALUES (?, ?, ?, 0, ?)"
    db.execute(sql, (path, parent(path), value, owner))


def _version(db: sqlite3.Connection, path: str, wanted: int | None) -> int:
    """The version of a node. Raises NoNode, and WrongVersion if it is not `wanted`."""
    row = db.execute("SELECT version FROM nodes WHERE path = ?", (check(path),)).fetchone()
    if row is None:
        raise no_node(path)
    check_version(path, row[0], wanted)
    return int(row[0])


def _children(db: sqlite3.Connection, path: str) -> list[tuple[int, str]]:
    sql = "SELECT id, path FROM nodes WHERE parent = ? ORDER BY path"
    return db.execute(sql, (path,)).fetchall()


def _look(db: sqlite3.Connection, path: str) -> object:
    """A value that changes when the node or the list of its children changes."""
    row = db.execute("SELECT id, version FROM nodes WHERE path = ?", (path,)).fetchone()
    return row, _children(db, path)


def _end(db: sqlite3.Connection, sessions: list[str]) -> None:
    for session in sessions:
        db.execute("DELETE FROM nodes WHERE owner = ?", (session,))
        db.execute("DELETE FROM sessions WHERE id = ?", (session,))
