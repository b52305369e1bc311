"""Tests of log lines made from records of `logging`: their task, text, and repeated lines."""

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
from sunshower.runtime.events.log_lines import FAILURES_LOGGER, LINE_BYTES, LogCapture
from sunshower.texts import write

LOG = logging.getLogger("shop.prices")
Begin = Callable[[], tuple[StringIO, StringIO]]


@pytest.fixture
def capture() -> Iterator[LogCapture]:
    """A capture of this process, whose thread runs the task `check[2]`."""
    before = logging.getLogRecordFactory()
    found = LogCapture(7, lambda thread: ("check", 2) if thread else None)
    found.install()
    yield found
    logging.setLogRecordFactory(before)


def test_a_record_has_component_task_worker_and_logger(capture: LogCapture) -> None:
    LOG.warning("too cheap: %g", 0.5)
    (line,) = capture.take(0.0, 100.0)
    assert (line.component, line.task, line.worker, line.logger) == ("check", 2, 7, "shop.prices")
    assert (line.level, line.text, line.event) == ("warning", "too cheap: 0.5", "log")


def test_the_level_of_the_logger_decides(capture: LogCapture) -> None:
    LOG.info("not asked for")
    assert capture.take(0.0, 100.0) == []


def test_an_exception_is_logged_with_its_traceback(capture: LogCapture) -> None:
    try:
        raise KeyError("price")
    except KeyError:
        LOG.exception("no price")
    (line,) = capture.take(0.0, 100.0)
    assert line.text.startswith("no price\nTraceback")
    assert line.text.endswith("KeyError: 'price'")


def test_a_line_that_repeats_is_counted_and_others_are_kept(capture: LogCapture) -> None:
    for _ in range(100):
        LOG.warning("again")
    LOG.warning("another")
    assert [line.text for line in capture.take(0.0, 100.0)] == ["again"] * 5 + ["another"]
    (line,) = capture.take(10.0, 110.0)
    assert line.text.startswith("95 more lines in test_log_lines.py:")
    assert line.event == "repeated"


def test_texts_are_clipped_and_show_no_secret(capture: LogCapture) -> None:
    secret = Secret("hunter2-planted-here")
    LOG.warning("with %s %s", secret.reveal(), "x" * 10_000)
    (line,) = capture.take(0.0, 100.0)
    assert "hunter2" not in line.text
    assert len(line.text.encode()) <= LINE_BYTES


def test_a_record_with_wrong_arguments_is_logged_unformatted(capture: LogCapture) -> None:
    capture.note(logging.LogRecord("a", logging.ERROR, "a.py", 1, "%d", ("x",), None))
    (line,) = capture.take(0.0, 100.0)
    assert line.text == "%d"


def test_failures_that_statistics_report_are_not_captured_too(capture: LogCapture) -> None:
    logging.getLogger(FAILURES_LOGGER).warning("message 3 failed")
    assert capture.take(0.0, 100.0) == []


def test_records_that_are_not_taken_do_not_fill_the_memory(capture: LogCapture) -> None:
    for _ in range(5_000):
        LOG.warning("again")
    capture.take(0.0, 100.0)
    (line,) = capture.take(10.0, 110.0)
    assert line.text.startswith("995 more lines")


# ---- what user code prints -----------------------------------------------------------------------


@pytest.fixture
def begin(capture: LogCapture, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Capture the standard output and error of this process; returns what they print to."""

    def call() -> tuple[StringIO, StringIO]:
        found = StringIO(), StringIO()
        monkeypatch.setattr(sys, "stdout", found[0])
        monkeypatch.setattr(sys, "stderr", found[1])
        capture.capture_output()
        return found

    return call


def test_a_printed_line_has_component_task_worker_and_stream(
    capture: LogCapture, begin: Begin
) -> None:
    streams = begin()
    print("price", 3, sep="=")
    print("odd price", file=sys.stderr)
    first, second = capture.take(0.0, 100.0)
    assert (first.component, first.task, first.worker, first.logger) == ("check", 2, 7, "stdout")
    assert (first.level, first.text, first.event) == ("info", "price=3", "output")
    assert (second.level, second.text, second.logger) == ("warning", "odd price", "stderr")
    assert [one.getvalue() for one in streams] == ["price=3\n", "odd price\n"]


def test_parts_of_a_line_are_joined_and_lines_of_one_call_are_divided(
    capture: LogCapture, begin: Begin
) -> None:
    begin()
    print("one", end=" ")
    assert capture.take(0.0, 100.0) == []
    sys.stderr.writelines(["between\n"])
    print("line\n\nand another")
    texts = [line.text for line in capture.take(1.0, 101.0)]
    assert texts == ["between", "one line", "and another"]


def test_a_printed_line_that_repeats_is_counted_and_others_are_kept(
    capture: LogCapture, begin: Begin
) -> None:
    begin()
    for number in range(100):
        print(f"record {number}")
    print("another")
    LOG.warning("logged")
    texts = [line.text for line in capture.take(0.0, 100.0)]
    assert texts == [*(f"record {n}" for n in range(5)), "another", "logged"]
    (line,) = capture.take(10.0, 110.0)
    assert line.text.startswith("95 more lines in test_log_lines.py:")


def test_a_printed_traceback_is_one_line_of_the_log(capture: LogCapture, begin: Begin) -> None:
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
    capture: LogCapture, begin: Begin
) -> None:
    begin()
    for number in range(6):
        pprint({"price": number})
    pprint({"price": 6})
    texts = [line.text for line in capture.take(0.0, 100.0)]
    assert texts == [f"{{'price': {number}}}" for number in (*range(5), 6)]


def test_what_a_handler_or_a_sink_prints_is_not_captured_too(
    capture: LogCapture, begin: Begin
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
    assert [one.getvalue() for one in streams] == ["a row of a sink\n", "too cheap\n"]


def test_a_printed_secret_is_not_shown_and_a_long_line_is_clipped(
    capture: LogCapture, begin: Begin
) -> None:
    begin()
    secret = Secret("hunter3-planted-here")
    print(secret.reveal(), "x" * 10_000)
    (line,) = capture.take(0.0, 100.0)
    assert "hunter3" not in line.text
    assert len(line.text.encode()) <= LINE_BYTES


def test_printed_text_without_an_end_does_not_fill_the_memory(
    capture: LogCapture, begin: Begin
) -> None:
    begin()
    for _ in range(100):
        print("." * 1_000, end="")
    print()
    (line,) = capture.take(0.0, 100.0)
    assert len(line.text.encode()) <= LINE_BYTES


def test_lines_of_several_threads_are_not_mixed(capture: LogCapture, begin: Begin) -> None:
    begin()
    print("main", end=" ")
    other = threading.Thread(target=lambda: print("other"))
    other.start()
    other.join()
    print("thread")
    assert [line.text for line in capture.take(0.0, 100.0)] == ["other", "main thread"]
