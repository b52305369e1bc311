"""Tests of the lines that user code prints, on their way to the log of a topology."""

# ruff: noqa: T201, T203 (what is printed is the subject)

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from io import StringIO
from pprint import pprint

import pytest

from sunshower import Secret
from sunshower.actors.worker import PrintedLines
from sunshower.runtime.events.log_lines import LINE_BYTES, LogCapture, LogLine, Place
from sunshower.texts import write

LOG = logging.getLogger("shop.prices")
Begin = Callable[[], tuple[StringIO, StringIO]]


class Capture:
    """What worker 7, whose threads run the task `check[2]`, logs and prints."""

    def __init__(self) -> None:
        self.logged = LogCapture(7, self.place)
        self.printed = PrintedLines(7, self.place)
        self.logged.install()

    def place(self, thread: int | None) -> Place:
        return ("check", 2) if thread else None

    def take(self, now: float, wall_s: float) -> list[LogLine]:
        return self.logged.take(now, wall_s, self.printed.take())


@pytest.fixture
def capture() -> Iterator[Capture]:
    before = logging.getLogRecordFactory()
    yield Capture()
    logging.setLogRecordFactory(before)


@pytest.fixture
def begin(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Capture the standard output and error of this process; returns what they print to."""

    def call() -> tuple[StringIO, StringIO]:
        streams = StringIO(), StringIO()
        monkeypatch.setattr(sys, "stdout", streams[0])
        monkeypatch.setattr(sys, "stderr", streams[1])
        capture.printed.install()
        return streams

    return call


def test_a_printed_line_has_component_task_worker_and_stream(
    capture: Capture, begin: Begin
) -> None:
    streams = begin()
    print("price", 3, sep="=")
    print("odd price", file=sys.stderr)
    first, second = capture.take(0.0, 100.0)
    assert (first.component, first.task, first.worker, first.logger) == ("check", 2, 7, "stdout")
    assert (first.level, first.text, first.event) == ("info", "price=3", "output")
    assert (second.level, second.text, second.logger) == ("warning", "odd price", "stderr")
    assert [stream.getvalue() for stream in streams] == ["price=3\n", "odd price\n"]


def test_parts_of_a_line_are_joined_and_lines_of_one_call_are_divided(
    capture: Capture, begin: Begin
) -> None:
    begin()
    print("one", end=" ")
    assert capture.take(0.0, 100.0) == []
    sys.stderr.writelines(["between\n"])
    print("line\n\nand another")
    texts = [line.text for line in capture.take(1.0, 101.0)]
    assert texts == ["between", "one line", "and another"]


def test_a_printed_line_that_repeats_is_counted_and_others_are_kept(
    capture: Capture, begin: Begin
) -> None:
    begin()
    for number in range(100):
        print(f"record {number}")
    print("another")
    LOG.warning("logged")
    texts = [line.text for line in capture.take(0.0, 100.0)]
    assert texts == [*(f"record {n}" for n in range(5)), "another", "logged"]
    (line,) = capture.take(10.0, 110.0)
    assert line.text.startswith("95 more lines in test_printed_lines.py:")


def test_a_printed_traceback_is_one_line_of_the_log(capture: Capture, begin: Begin) -> None:
    begin()
    for _ in range(2):
        try:
            {}["price"]
        except KeyError:
            traceback.print_exc()
    first, second = capture.take(0.0, 100.0)
    assert first.text.startswith("Traceback (most recent call last):\n")
    assert first.text.endswith("KeyError: 'price'")
    assert first.text == second.text
    assert first.component == "check"


def test_what_pprint_prints_has_the_source_line_of_its_caller(
    capture: Capture, begin: Begin
) -> None:
    begin()
    for number in range(6):
        pprint({"price": number})
    pprint({"price": 6})
    texts = [line.text for line in capture.take(0.0, 100.0)]
    assert texts == [f"{{'price': {number}}}" for number in (*range(5), 6)]


def test_what_a_handler_or_a_sink_prints_is_not_captured_too(
    capture: Capture, begin: Begin
) -> None:
    streams = begin()
    handler = logging.StreamHandler(sys.stderr)
    LOG.addHandler(handler)
    try:
        LOG.warning("too cheap")
    finally:
        LOG.removeHandler(handler)
    write(sys.stdout, "a row of a sink\n")
    assert [line.text for line in capture.take(0.0, 100.0)] == ["too cheap"]
    assert [stream.getvalue() for stream in streams] == ["a row of a sink\n", "too cheap\n"]


def test_a_printed_secret_is_not_shown_and_a_long_line_is_clipped(
    capture: Capture, begin: Begin
) -> None:
    begin()
    secret = Secret("hunter3-planted-here")
    print(secret.reveal(), "x" * 10_000)
    (line,) = capture.take(0.0, 100.0)
    assert "hunter3" not in line.text
    assert len(line.text.encode()) <= LINE_BYTES


def test_printed_text_without_an_end_does_not_fill_the_memory(
    capture: Capture, begin: Begin
) -> None:
    begin()
    for _ in range(100):
        print("." * 1_000, end="")
    print()
    (line,) = capture.take(0.0, 100.0)
    assert len(line.text.encode()) <= LINE_BYTES


def test_lines_of_several_threads_are_not_mixed(capture: Capture, begin: Begin) -> None:
    begin()
    print("main", end=" ")
    other = threading.Thread(target=lambda: print("other"))
    other.start()
    other.join()
    print("thread")
    assert [line.text for line in capture.take(0.0, 100.0)] == ["other", "main thread"]
