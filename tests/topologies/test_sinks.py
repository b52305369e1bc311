"""JsonLines and Stdout: their output after a flush, a crash, and on a full disk."""

from __future__ import annotations

import errno
import io
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sunshower import Context, JsonLines, Records, Stdout, Topology
from sunshower.errors import RecordMismatch, TopologyError, TopologyFailed
from sunshower.outages import is_unavailable
from sunshower.records import Schema
from tests.topologies.examples import Order, Total, Word


def start(bolt: JsonLines, index: int = 0, parallelism: int = 1) -> JsonLines:
    bolt.prepare(Context("t", "store", 7 + index, index, parallelism))
    return bolt


@pytest.mark.parametrize(
    ("record", "schema", "line"),
    [
        (Total("rain", 3), Schema.of(Total), {"word": "rain", "times": 3}),
        (Order(7, 2.5), Schema.of(Order), {"id": 7, "price": 2.5}),
        (("rain", None), Schema(("word", "times")), {"word": "rain", "times": None}),
        (Word("Größe\n\ud800"), Schema.of(Word), {"word": "Größe\n\ud800"}),
    ],
)
def test_record_becomes_one_object(tmp_path: Path, record: Any, schema: Schema, line: Any) -> None:
    sink = JsonLines(tmp_path / "out.jsonl")
    sink.check_input(schema)
    bolt = start(sink)
    bolt.process(record)
    bolt.flush()
    written = (tmp_path / "out.jsonl").read_text(encoding="utf-8")
    assert written.count("\n") == 1
    assert json.loads(written) == line


def test_lines_are_in_the_file_after_each_flush(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    bolt = start(JsonLines(file))
    for number in range(3):
        bolt.process(Word(str(number)))
        bolt.flush()
        assert len(file.read_text().splitlines()) == number + 1


def test_cleanup_writes_the_remaining_lines(tmp_path: Path) -> None:
    bolt = start(JsonLines(tmp_path / "out.jsonl"))
    bolt.process(Word("rain"))
    bolt.cleanup()
    assert (tmp_path / "out.jsonl").read_text() == '{"word": "rain"}\n'


def test_each_of_several_tasks_has_its_own_file(tmp_path: Path) -> None:
    for index in range(2):
        bolt = start(JsonLines(tmp_path / "out.jsonl"), index, 2)
        bolt.process(Word(str(index)))
        bolt.cleanup()
    assert (tmp_path / "out.0.jsonl").read_text() == '{"word": "0"}\n'
    assert (tmp_path / "out.1.jsonl").read_text() == '{"word": "1"}\n'


@pytest.mark.parametrize(
    ("before", "between"),
    [
        ("", ""),
        ('{"word": "sun"}\n', ""),
        ('{"word": "su', "\n"),
        ("{", "\n"),
    ],
)
def test_a_line_that_a_crash_left_incomplete_is_ended_first(
    tmp_path: Path, before: str, between: str
) -> None:
    file = tmp_path / "out.jsonl"
    file.write_text(before)
    bolt = start(JsonLines(file))
    bolt.process(Word("rain"))
    bolt.cleanup()
    assert file.read_text() == before + between + '{"word": "rain"}\n'


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (b"raw", TypeError, "bytes"),
        (math.nan, ValueError, "word: nan is not for JSON"),
        (-math.inf, ValueError, "word: -inf is not for JSON"),
    ],
)
def test_a_value_that_json_cannot_represent_fails_its_record_alone(
    tmp_path: Path, value: Any, error: type[Exception], message: str
) -> None:
    bolt = start(JsonLines(tmp_path / "out.jsonl"))
    with pytest.raises(error, match=message):
        bolt.process(Word(value))
    bolt.process(Word("rain"))
    bolt.cleanup()
    assert (tmp_path / "out.jsonl").read_text() == '{"word": "rain"}\n'


@pytest.mark.parametrize(
    "path",
    [
        lambda folder: folder,
        lambda folder: folder / "no" / "out.jsonl",
        lambda folder: folder / "file" / "out.jsonl",
    ],
)
def test_path_that_cannot_be_written_is_refused_at_once(
    tmp_path: Path, path: Callable[[Path], Path]
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TopologyError, match="cannot be written; give a file in a folder") as caught:
        JsonLines(path(tmp_path))
    assert str(path(tmp_path)) in str(caught.value)


def test_plain_tuples_of_different_fields_are_refused_at_the_declaration(tmp_path: Path) -> None:
    topology = Topology("t")
    pairs = topology.spout("pairs", Records([("rain", 1)], fields=("word", "times")))
    others = topology.spout("others", Records([(1, "rain")], fields=("times", "word")))
    inputs = [pairs.shuffle(), others.shuffle()]
    with pytest.raises(RecordMismatch, match=r"out\.jsonl.*\(word, times\) and \(times, word\)"):
        topology.bolt("store", JsonLines(tmp_path / "out.jsonl"), inputs)


class FullDisk(io.FileIO):
    """A file on a disk with `room` bytes left, or without a limit if it is None."""

    room: int | None = None
    may_truncate = True

    def write(self, data: Any) -> int:
        if self.room is not None and data:
            if not self.room:
                raise OSError(errno.ENOSPC, "No space left on device")
            data, self.room = data[: self.room], self.room - len(data[: self.room])
        return super().write(data)

    def truncate(self, size: int | None = None) -> int:
        if not self.may_truncate:
            raise OSError(errno.EIO, "Input/output error")
        return super().truncate(size)


def on_disk(bolt: JsonLines, monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    """Start a bolt whose file is a FullDisk, and return the file."""
    disk = FullDisk(bolt.path, "ab+")
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Path, "open", lambda *_, **__: disk)
        start(bolt)
    return disk


@pytest.mark.parametrize("room", [0, 1, 15, 16, 17, 31])
@pytest.mark.parametrize("before", ["", '{"word": "sun"}\n', '{"word": "su'])
def test_a_full_disk_leaves_no_incomplete_and_no_duplicate_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, before: str
) -> None:
    file = tmp_path / "out.jsonl"
    file.write_text(before)
    bolt = JsonLines(file)
    disk = on_disk(bolt, monkeypatch)
    for left in (room, 0):
        disk.room = left
        for word in ("rain", "snow"):
            bolt.process(Word(word))
        with pytest.raises(OSError, match="No space left") as raised:
            bolt.flush()
        assert is_unavailable(raised.value)
        assert file.read_text() == before
    disk.room = None
    for word in ("rain", "snow"):
        bolt.process(Word(word))
    bolt.cleanup()
    whole = before + "\n" * (before[-1:] not in ("", "\n"))
    assert file.read_text() == whole + '{"word": "rain"}\n{"word": "snow"}\n'


def test_an_incomplete_line_that_cannot_be_removed_is_ended_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bolt = JsonLines(tmp_path / "out.jsonl")
    disk = on_disk(bolt, monkeypatch)
    disk.room, disk.may_truncate = 5, False
    bolt.process(Word("rain"))
    with pytest.raises(OSError, match="No space left"):
        bolt.flush()
    disk.room = None
    bolt.process(Word("rain"))
    bolt.cleanup()
    assert (tmp_path / "out.jsonl").read_text() == '{"wor\n{"word": "rain"}\n'


# ---- the standard output ------------------------------------------------------------------------


def test_stdout_prints_values_with_tabs_between(capsys: pytest.CaptureFixture[str]) -> None:
    bolt = Stdout()
    for record in (Total("rain", 3), Order(7, 2.5), ("plain", 1)):
        bolt.process(record)
    assert capsys.readouterr().out == ""
    bolt.flush()
    assert capsys.readouterr().out == "rain\t3\n7\t2.5\nplain\t1\n"


def test_stdout_prints_records_with_its_format(capsys: pytest.CaptureFixture[str]) -> None:
    bolt = Stdout(lambda total: f"{total.times:>3} {total.word}")
    bolt.process(Total("rain", 3))
    bolt.flush()
    assert capsys.readouterr().out == "  3 rain\n"


def test_stdout_escapes_a_character_that_its_encoding_does_not_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="utf-8"))
    bolt = Stdout()
    for word in ("rain", "\ud800", "sun"):
        bolt.process(Word(word))
    bolt.flush()
    assert raw.getvalue() == b"rain\n\\ud800\nsun\n"


def test_a_closed_stdout_is_no_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(sys, "stdout", Closed())
    bolt = Stdout()
    bolt.process(Word("rain"))
    with pytest.raises(TopologyFailed, match="the standard output is closed") as raised:
        bolt.flush()
    assert not is_unavailable(raised.value)
