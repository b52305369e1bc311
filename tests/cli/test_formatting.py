"""Tests of error messages: one paragraph, with the frames of user code only."""

from __future__ import annotations

import concurrent.futures
from pathlib import Path

import sunshower
from sunshower.cli.formatting import format_error
from sunshower.errors import SourceError, TopologyFailed

OURS = Path(sunshower.__file__).parent / "runtime" / "bolt_task.py"
TRACEBACK = f"""
Traceback (most recent call last):
  File "{OURS}", line 123, in _run
    for produced in results:
  File "words.py", line 7, in split
    raise ValueError(
    ^^^^^^
  File "{OURS.parent}/ids.py", line 3, in helper
    call_back()
  File "words.py", line 9, in other
    return 1
ValueError: no words"""


def test_an_error_is_its_message() -> None:
    assert format_error(SourceError("a.txt is gone")) == "sunshower: a.txt is gone"


def test_of_a_traceback_only_frames_of_user_code_are_shown() -> None:
    text = format_error(TopologyFailed(f"split[0] raised ValueError: no words. Fix it.{TRACEBACK}"))
    assert text.splitlines() == [
        "sunshower: split[0] raised ValueError: no words. Fix it.",
        '  File "words.py", line 7, in split',
        "    raise ValueError(",
        "    ^^^^^^",
        '  File "words.py", line 9, in other',
        "    return 1",
    ]


def test_a_traceback_without_user_code_is_not_shown() -> None:
    trace = f"""
Traceback (most recent call last):
  File "{OURS}", line 123, in _run
    topics.result()
  File "{concurrent.futures.__file__}", line 456, in result
    raise self._exception
UnknownTopic: there is no topic 'sales'"""
    text = format_error(TopologyFailed(f"sales[0] raised UnknownTopic. Create it.{trace}"))
    assert text == "sunshower: sales[0] raised UnknownTopic. Create it."
