"""Text files in batches: the same lines as TextFiles, and the same bytes in each repeat."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.errors import IncompleteBatch, SourceError, StateMismatch, TopologyError
from sunshower.state.tree import MemoryForest
from sunshower.topologies.sources import TextFiles
from sunshower.trident.spouts.bounds import Bounds
from sunshower.trident.spouts.fixed import TextFileBatches
from tests.trident.rigs.emitting import Drive

PARTS = st.sampled_from(["", "a", "grün", "\r\n", "\n", "\n\n", "long " * 5, "\r"])
TEXTS = st.lists(st.lists(PARTS, max_size=12).map("".join), min_size=1, max_size=4)


def files(folder: Path, *texts: str) -> list[Path]:
    paths = [folder / f"{number}.txt" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text.encode())
    return paths


def lines(rows: list[Any]) -> list[str]:
    return [row.text for row in rows]


@given(TEXTS, st.integers(1, 7), st.integers(1, 30), st.integers(1, 3), st.integers(1, 3))
def test_all_lines_come_once_with_batches_of_any_size(
    tmp_path_factory: Any, texts: list[str], records: int, size: int, shares: int, tasks: int
) -> None:
    folder = tmp_path_factory.mktemp("texts")
    paths = files(folder, *texts)
    bounds = Bounds(records=records, bytes=size)
    drive = Drive(TextFileBatches(*paths, bounds=bounds, shares=shares), tasks)
    batches = drive.run(1_000)
    emitted = [line for rows in batches for line in lines(rows)]
    assert sorted(emitted) == sorted(line.text for line in TextFiles(*paths).records())
    assert drive.is_last(len(batches))


def test_a_batch_has_as_many_lines_as_its_bound_and_repeats_are_equal(tmp_path: Path) -> None:
    (path,) = files(tmp_path, "".join(f"{number}\n" for number in range(100)))
    drive = Drive(TextFileBatches(path, bounds=Bounds(records=40)))
    first, second = drive.emit(1), drive.emit(2)
    assert lines(first + second) == [str(number) for number in range(80)]
    drive.restart()
    assert drive.emit(1, 1) == first
    assert drive.emit(2, 1) == second
    assert len(drive.emit(3)) == 20


def test_lines_that_are_longer_than_a_batch_come_whole(tmp_path: Path) -> None:
    (path,) = files(tmp_path, "x" * 50 + "\nshort\n" + "y" * 30)
    drive = Drive(TextFileBatches(path, bounds=Bounds(bytes=8)))
    assert [lines(rows) for rows in drive.run()][:3] == [["x" * 50], ["short"], ["y" * 30]]


def test_a_file_that_has_changed_cannot_be_emitted_again(tmp_path: Path) -> None:
    (path,) = files(tmp_path, "one\ntwo\n")
    drive = Drive(TextFileBatches(path))
    drive.emit(1)
    path.write_text("one\nTWO\n")
    with pytest.raises(IncompleteBatch, match="bytes 0 to 8"):
        drive.emit(1, 1)
    path.unlink()
    with pytest.raises(SourceError, match="cannot be read any more"):
        drive.emit(1, 2)


def test_a_store_of_another_list_of_files_is_refused(tmp_path: Path) -> None:
    paths = files(tmp_path, "b\n", "a\n" * 9)
    forest, bounds = MemoryForest(), Bounds(records=2)
    former = Drive(TextFileBatches(paths[1], bounds=bounds), forest=forest)
    former.batch(1)
    drive = Drive(TextFileBatches(*paths, bounds=bounds), forest=forest)
    drive.metadata = former.metadata
    with pytest.raises(StateMismatch, match="another list of files"):
        drive.emit(2)
    assert len(former.emit(2)) == 2


def test_the_error_names_bytes_that_are_not_text(tmp_path: Path) -> None:
    path = tmp_path / "bad"
    path.write_bytes(b"good\nb\xffd\n")
    with pytest.raises(SourceError, match="bad, byte 6: invalid start byte"):
        Drive(TextFileBatches(path)).emit(1)
    assert lines(Drive(TextFileBatches(path, encoding="latin-1")).emit(1)) == ["good", "bÿd"]
    with pytest.raises(TopologyError, match="encoding 'utf-16'"):
        TextFileBatches(path, encoding="utf-16")


@pytest.mark.parametrize("encoding", ["utf-8", "U8", "utf-8-sig"])
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_byte_order_mark_is_no_part_of_the_first_line(
    tmp_path: Path, encoding: str, size: int
) -> None:
    path = tmp_path / "marked.txt"
    path.write_bytes(b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n\xff")
    drive = Drive(TextFileBatches(path, encoding=encoding, bounds=Bounds(records=2, bytes=size)))
    batches = [drive.emit(1), *([drive.emit(2)] if size == 1 else [])]
    assert [line for rows in batches for line in lines(rows)] == ["a", "\ufeffb"]
    with pytest.raises(SourceError, match="byte 10"):
        drive.emit(1 + len(batches))
    drive.restart()
    assert drive.emit(1, 1) == batches[0]
