"""Tests of log lines made from records of `logging`: their task, text, and repeated lines."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from sunshower import Secret
from sunshower.runtime.events.log_lines import FAILURES_LOGGER, LINE_BYTES, LogCapture

LOG = logging.getLogger("shop.prices")


@pytest.fixture
def capture() -> Iterator[LogCapture]:
    """A capture of this process, whose thread runs the task `check[2]`."""
    before = logging.getLogRecordFactory()
    log_capture = LogCapture(7, lambda thread: ("check", 2) if thread else None)
    log_capture.install()
    yield log_capture
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
