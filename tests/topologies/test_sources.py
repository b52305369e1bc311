"""TextFiles, Records and Counter: the share of each task, encodings, and wrong files."""

from __future__ import annotations

import os
import pickle
import tokenize
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from sunshower import Context, Counter, Number, Records, Spout, TextFiles
from sunshower.errors import SourceError
from tests.topologies.examples import Word


def task(spout: Spout[Any], index: int = 0, parallelism: int = 1) -> Iterator[Any]:
    """Return the records of one task, which has its own copy of the spout, as in a worker."""
    copy: Spout[Any] = pickle.loads(pickle.dumps(spout))
    copy.open(Context("t", "spout", 7 + index, index, parallelism))
    return copy.records()


def texts(spout: TextFiles, index: int = 0, parallelism: int = 1) -> list[str]:
    return [line.text for line in task(spout, index, parallelism)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in "dbca":
        (tmp_path / f"{name}.txt").write_text(f"{name}1\n{name}2\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "e.txt").write_text("e1")
    return tmp_path


# ---- text files ---------------------------------------------------------------------------------


def test_files_are_read_in_the_order_of_their_paths(folder: Path) -> None:
    assert texts(TextFiles(folder / "*.txt")) == ["a1", "a2", "b1", "b2", "c1", "c2", "d1", "d2"]


def test_tasks_share_the_files(folder: Path) -> None:
    spout = TextFiles(f"{folder}/**/*.txt")
    shares = [texts(spout, index, 2) for index in range(2)]
    assert shares == [["a1", "a2", "c1", "c2", "e1"], ["b1", "b2", "d1", "d2"]]
    assert texts(spout, 8, 9) == []


def test_file_that_two_patterns_name_is_read_once(folder: Path) -> None:
    assert texts(TextFiles(folder / "a.txt", folder / "a*")) == ["a1", "a2"]


def test_name_that_exists_is_no_glob(folder: Path) -> None:
    (folder / "[ab].txt").write_text("brackets")
    assert texts(TextFiles(folder / "[ab].txt")) == ["brackets"]


def test_the_list_of_files_is_made_at_the_declaration(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    spout = TextFiles("a.txt", "b*")
    monkeypatch.chdir("/")
    (folder / "b0.txt").write_text("too late")
    assert texts(spout) == ["a1", "a2", "b1", "b2"]


def test_lines_have_no_newlines_and_blank_lines_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes(b"unix\n\n  \ndos\r\nmac\rform\x0cfeed\nlast")
    assert texts(TextFiles(file)) == ["unix", "", "  ", "dos", "mac", "form\x0cfeed", "last"]


def test_reading_is_lazy(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes(b"good\n" * 100_000 + b"\xff")
    assert len(list(islice(task(TextFiles(file)), 10))) == 10


# ---- encodings ----------------------------------------------------------------------------------


def test_files_are_read_with_the_given_encoding(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes("Größe\n".encode("latin-1"))
    assert texts(TextFiles(file, encoding="latin-1")) == ["Größe"]
    assert texts(TextFiles(file, errors="replace")) == ["Gr\ufffd\ufffde"]


@pytest.mark.parametrize(
    "text",
    [
        b"# coding: latin-1\nGr\xf6\xdfe\n",
        b"#!x\n# -*- coding: cp1252 -*-\n\x80",
        b"caf\xc3\xa9\n",
        b"\xef\xbb\xbfbom\n",
        b"",
        b"one line",
    ],
)
def test_declared_encoding_is_the_one_that_python_uses(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "code.py"
    file.write_bytes(text)
    with tokenize.open(file) as expected:
        assert texts(TextFiles(file, encoding="declared")) == expected.read().splitlines()


@pytest.mark.parametrize(
    ("encoding", "text", "byte"),
    [
        ("utf-8", b"\xff", 0),
        ("utf-8", b"ok\n" * 50_000 + b"bad \xff\n" + b"ok\n" * 50_000, 150_004),
        ("utf-8", b"ok\ncut \xe2\x82", 7),
        ("utf-8-sig", b"\xef\xbb\xbfok\n\xff", 6),
        ("utf-16-le", b"o\x00k\x00\x00\xdc", 4),
        ("ascii", b"caf\xc3\xa9", 3),
        ("declared", b"first \xff\n", 6),
        ("declared", b"# coding: ascii\n\n\xe9", 17),
    ],
)
def test_undecodable_byte_is_named(tmp_path: Path, encoding: str, text: bytes, byte: int) -> None:
    file = tmp_path / "bad.txt"
    file.write_bytes(text)
    spout = TextFiles(file, encoding=encoding)
    with pytest.raises(SourceError, match=rf'bad\.txt, byte {byte}: .*errors="replace"'):
        texts(spout)
    assert texts(TextFiles(file, encoding=encoding, errors="replace"))


MARK = b"\xef\xbb\xbf"


@pytest.mark.parametrize("encoding", ["utf-8", "UTF8", "utf-8-sig", "declared"])
@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (MARK + b"a\nb\n", ["a", "b"]),
        (b"a\n" + MARK + b"b", ["a", "\ufeffb"]),
        (MARK + MARK + b"a", ["\ufeffa"]),
        (MARK, []),
        (b"\xef\xbb\xbe", ["\ufefe"]),
    ],
)
def test_a_byte_order_mark_is_no_part_of_the_first_line(
    tmp_path: Path, encoding: str, data: bytes, lines: list[str]
) -> None:
    for name in ("1.txt", "2.txt"):
        (tmp_path / name).write_bytes(data)
    assert texts(TextFiles(tmp_path / "*.txt", encoding=encoding)) == lines * 2


def test_an_unknown_declared_encoding_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "odd.py"
    file.write_bytes(b"# coding: klingon\n")
    with pytest.raises(SourceError, match=r"odd\.py.*klingon; give encoding="):
        texts(TextFiles(file, encoding="declared"))


@pytest.mark.parametrize("wrong", [{"encoding": "klingon"}, {"encoding": "hex"}, {"errors": "no"}])
def test_unknown_codec_is_refused_at_once(folder: Path, wrong: dict[str, str]) -> None:
    with pytest.raises(SourceError, match=f"{next(iter(wrong.values()))}.*declared"):
        TextFiles(folder / "a.txt", **wrong)


# ---- files that are refused ---------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["missing.txt", "*.csv", "su?"])
def test_missing_file_and_empty_glob_are_refused_at_once(folder: Path, pattern: str) -> None:
    with pytest.raises(SourceError, match=r"no file matches .*give an absolute path") as caught:
        TextFiles(folder / "a.txt", folder / pattern)
    assert pattern in str(caught.value)


def test_what_cannot_be_read_is_refused_at_once(folder: Path) -> None:
    with pytest.raises(SourceError, match="give paths or globs"):
        TextFiles()
    with pytest.raises(SourceError, match=r"sub is a folder; give a glob .*sub/\*'"):
        TextFiles(folder / "sub")
    (folder / "f.txt").symlink_to("f.txt")  # a file that even root cannot open
    with pytest.raises(SourceError, match=r"f\.txt cannot be read .*a glob that leaves it out"):
        TextFiles(folder / "*.txt")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_forbidden_file_is_refused_at_once(folder: Path) -> None:
    (folder / "a.txt").chmod(0)
    with pytest.raises(SourceError, match=r"a\.txt cannot be read \(Permission denied\)"):
        TextFiles(folder / "*.txt")


def test_a_file_that_is_removed_before_it_is_read_is_named(folder: Path) -> None:
    spout = TextFiles(folder / "*.txt")
    (folder / "c.txt").unlink()
    with pytest.raises(SourceError, match=r"c\.txt cannot be read"):
        texts(spout)


# ---- iterables and numbers ----------------------------------------------------------------------


def test_records_are_shared_among_the_tasks() -> None:
    letters = Records([Word(letter) for letter in "abcde"], type=Word)
    assert [[w.word for w in task(letters, index, 2)] for index in range(2)] == [
        ["a", "c", "e"],
        ["b", "d"],
    ]


def endless() -> Iterator[Word | None]:
    while True:
        yield Word("rain")
        yield None


def test_records_of_a_function_start_again_in_every_task() -> None:
    spout = Records(endless, type=Word)
    for _ in range(2):
        assert list(islice(task(spout), 3)) == [Word("rain"), None, Word("rain")]


def test_counter_counts_to_its_stop() -> None:
    assert list(task(Counter(3))) == [Number(0), Number(1), Number(2)]
    assert [number.value for number in task(Counter(7), 1, 3)] == [1, 4]
    assert list(task(Counter(0))) == []


def test_counter_without_a_stop_does_not_end() -> None:
    assert [number.value for number in islice(task(Counter(), 2, 3), 3)] == [2, 5, 8]
