"""Sessions in SQLite expire by missed heartbeats, whatever the clocks of the machine show."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from sunshower.state.sqlite_tree import SilentSessions, SqliteTree

TIMEOUT_S, LOOK_S = 10.0, 2.5


def test_session_ends_without_a_heartbeat_for_its_timeout() -> None:
    silent = SilentSessions(LOOK_S)
    looks = [
        silent.ended([("alive", n, TIMEOUT_S), ("dead", 3, TIMEOUT_S)], n * LOOK_S)
        for n in range(6)
    ]
    assert looks == [[], [], [], [], [], ["dead"]]


def test_each_session_has_a_timeout_of_its_own() -> None:
    silent = SilentSessions(1.0)
    rows = [("short", 0, 2.0), ("long", 0, 4.0)]
    looks = [silent.ended(rows, float(n)) for n in range(6)]
    assert looks == [[], [], [], ["short"], ["short"], ["short", "long"]]


@pytest.mark.parametrize("frozen_s", [TIMEOUT_S, 3600.0])
def test_client_that_was_stopped_itself_ends_no_other_session(frozen_s: float) -> None:
    """All processes were stopped together; the first one that continues must not end the others."""
    silent = SilentSessions(LOOK_S)
    silent.ended([("other", 1, TIMEOUT_S)], 0.0)
    silent.ended([("other", 1, TIMEOUT_S)], LOOK_S)
    assert silent.ended([("other", 1, TIMEOUT_S)], LOOK_S + frozen_s) == []
    assert silent.ended([("other", 2, TIMEOUT_S)], 2 * LOOK_S + frozen_s) == []


@pytest.mark.parametrize("shown_s", [0.0, 1e12], ids=["set back", "set forward"])
def test_setting_the_wall_clock_ends_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown_s: float
) -> None:
    with closing(SqliteTree(tmp_path / "tree")) as tree:
        tree.create("/mine", ephemeral=True)
        session = tree.session
        monkeypatch.setattr(time, "time", lambda: shown_s)
        with closing(SqliteTree(tmp_path / "tree")) as other:  # it looks for expired sessions
            other.create("/others", ephemeral=True)
            tree.create("/again", ephemeral=True)
            assert tree.session == session
            assert other.children("/") == ["again", "mine", "others"]


def test_session_of_a_process_that_died_ends(tmp_path: Path) -> None:
    with closing(SqliteTree(tmp_path / "tree", session_timeout_s=0.2)) as tree:
        tree.create("/left")
        with sqlite3.connect(tmp_path / "tree") as db:  # the rows that a dead process leaves
            db.execute("INSERT INTO sessions VALUES ('dead', 7, 0.2)")
            db.execute("UPDATE nodes SET owner = 'dead' WHERE path = '/left'")
        db.close()
        gone = threading.Event()
        tree.watch("/left", lambda: None if tree.get("/left") else gone.set())
        assert gone.wait(60)
