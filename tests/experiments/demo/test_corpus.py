"""Tests of the demo's text and its word count in a plain loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from sunshower.errors import SourceError
from sunshower.experiments.demo import Corpus, standard_library


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_text("one two\n\nthree one\n")
    (tmp_path / "b.py").write_bytes(b"# coding: latin-1\ncaf\xe9\n")
    (tmp_path / "c.py").write_bytes(b"# coding: nonsense\n")
    (tmp_path / "d.py").write_bytes(b"caf\xe9\n")
    (tmp_path / "e.py").write_text("last")
    return tmp_path


def test_files_are_read_by_the_encoding_that_they_declare(folder: Path) -> None:
    corpus = Corpus.of([f"{folder}/*.py"])
    assert corpus.words["café"] == 1
    assert corpus.words["one"] == 2


def test_blank_lines_and_a_last_line_without_end_are_lines(folder: Path) -> None:
    corpus = Corpus.of([f"{folder}/*.py"])
    assert [(Path(path).name, lines) for path, lines in corpus.files.items()] == [
        ("a.py", 3),
        ("b.py", 2),
        ("e.py", 1),
    ]
    assert corpus.lines == 6


def test_files_that_cannot_be_decoded_are_listed_with_the_reason(folder: Path) -> None:
    skipped = Corpus.of([f"{folder}/*.py"]).skipped
    assert {Path(path).name: reason for path, reason in skipped.items()} == {
        "c.py": "unknown encoding",
        "d.py": "invalid or missing encoding declaration",
    }


def test_it_is_an_error_if_no_file_can_be_decoded(folder: Path) -> None:
    with pytest.raises(SourceError, match="none of the 2 files can be decoded"):
        Corpus.of([f"{folder}/[cd].py"])


def test_an_empty_glob_is_an_error(folder: Path) -> None:
    with pytest.raises(SourceError, match="no file matches"):
        Corpus.of([f"{folder}/*.txt"])


def test_each_spout_task_has_its_share(folder: Path) -> None:
    corpus = Corpus.of([f"{folder}/*.py"])
    assert [line.strip() for line in corpus.share(0, 2)] == ["one two", "", "three one", "last"]
    assert corpus.share_size(0, 2) == 4
    assert corpus.share_size(1, 2) == 2


def test_the_standard_library_is_found_without_installed_packages() -> None:
    files = standard_library()
    assert any(path.endswith("/argparse.py") for path in files)
    assert not any("site-packages" in path for path in files)
