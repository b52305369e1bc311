"""Stores of another release are refused with both versions, or upgraded."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sunshower import versions
from sunshower.errors import VersionMismatch
from sunshower.state.results import SqliteResults
from sunshower.state.sqlite_tree import SqliteTree
from sunshower.state.tree import Node

_FIRST_TREE = """
CREATE TABLE nodes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    path TEXT NOT NULL UNIQUE, parent TEXT NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL,
    owner TEXT
);
CREATE TABLE sessions (id TEXT PRIMARY KEY, until REAL NOT NULL);
INSERT INTO sessions VALUES ('old', 1.0);
INSERT INTO nodes (path, parent, value, version, owner) VALUES ('/kept', '/', x'78', 4, NULL);
INSERT INTO nodes (path, parent, value, version, owner) VALUES ('/gone', '/', 'x', 0, 'old');
"""


@pytest.mark.parametrize(
    ("name", "open_it"),
    [("TREE", SqliteTree), ("OFFSETS", lambda file: SqliteResults(file, "id"))],
    ids=["tree", "offsets"],
)
def test_file_of_a_later_release_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, open_it: object
) -> None:
    file = tmp_path / "store.db"
    for opened in (SqliteTree(file), SqliteResults(file, "id")):  # both in one file
        opened.close()
    part = {"TREE": "the tree", "OFFSETS": "the offsets"}[name]
    with sqlite3.connect(file) as db:
        db.execute("UPDATE sunshower_versions SET version = 99 WHERE part = ?", (part,))
    db.close()
    ours = getattr(versions, name)
    wanted = f"{part} in {file} has version 99, and this release .* version {ours}: use the release"
    with pytest.raises(VersionMismatch, match=wanted):
        open_it(file)  # type: ignore[operator]
    with sqlite3.connect(file) as db:
        rows = dict(db.execute("SELECT part, version FROM sunshower_versions"))
    db.close()
    assert rows[part] == 99, "nothing was changed"


def test_tree_of_version_1_is_upgraded_and_keeps_its_nodes(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with sqlite3.connect(file) as db:
        db.executescript(_FIRST_TREE)
    db.close()
    for _ in range(2):
        with closing(SqliteTree(file)) as tree:
            assert tree.children("/") == ["kept"]
            assert tree.get("/kept") == Node(b"x", 4)


def test_stamped_bytes_are_read_back_and_unstamped_ones_have_version_1() -> None:
    for data in (b"", b"one\ntwo", b"sunshower 9\n"):
        assert versions.unstamp("it", versions.stamp(4, data), 4, "way out") == data
    assert versions.unstamp("it", b"unstamped\nbytes", 1, "way out") == b"unstamped\nbytes"
    for other in (versions.stamp(5, b"x"), b"unstamped", b"sunshower nine\n", b""):
        with pytest.raises(VersionMismatch, match=r"^it has version [15], .* version 4: way out$"):
            versions.unstamp("it", other, 4, "way out")


def test_header_with_too_many_digits_is_no_version() -> None:
    data = versions.stamp(1)[:-2] + b"9" * 5000 + b"\n"  # Python refuses to read the number
    assert versions.unstamp("a file", data, 1, "remove it") == data
