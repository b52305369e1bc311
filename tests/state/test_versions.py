"""Stores of another release are refused with both versions."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from sunshower import versions
from sunshower.errors import VersionMismatch
from sunshower.state.results import SqliteResults
from sunshower.state.sqlite_tree import SqliteTree


@pytest.mark.parametrize(
    ("name", "open_it"),
    [("TREE", SqliteTree), ("OFFSETS", lambda file: SqliteResults(file, "id"))],
    ids=["tree", "offsets"],
)
def test_file_of_another_release_is_refused(
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
