"""Tests of `--ui` with runs in this process: the page stays after the end, as it was then."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from typing import Any
from urllib.request import urlopen

import pytest

from tests.cli.conftest import Start, Write, read_until

TEN = """
    topology = Topology("ten")
    topology.spout("numbers", Counter(10)).shuffle().bolt("out", lambda number: None, fields=())
"""
FAILING = """
    def fail(number: Number) -> None:
        raise ValueError("of the user")

    topology = Topology("failing", attempts_max=1)
    topology.spout("numbers", Counter(1)).shuffle().bolt("fail", fail)
"""


def page_after(process: subprocess.Popen[str], topology: str) -> tuple[str, dict[str, Any]]:
    """What is on the standard error until the page stays, and what the page then shows."""
    errors = read_until(process.stderr, "until Ctrl-C")
    url = re.search(r"http://127\.0\.0\.1:\d+/", errors)
    assert url is not None, errors
    with urlopen(f"{url[0]}api/topology?name={topology}", timeout=120) as answer:
        return errors, json.load(answer)


def test_the_page_shows_the_last_figures_after_the_end_until_ctrl_c(
    start: Start, write: Write
) -> None:
    process = start("run", "--inline", "--ui", "--stay", write(TEN))
    errors, shown = page_after(process, "ten")
    assert "10 tuples taken in, all of them acked" in errors
    assert shown["state"] == "finished"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 0


def test_the_page_of_a_failed_run_shows_why_and_the_status_stays_1(
    start: Start, write: Write
) -> None:
    process = start("run", "--inline", "--ui", "--stay", write(FAILING))
    errors, shown = page_after(process, "failing")
    assert "ValueError: of the user" in errors
    assert "of the user" in json.dumps(shown)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 1


@pytest.mark.parametrize("options", [["--ui"], ["--ui", "--no-stay"]])
def test_without_a_terminal_the_page_ends_with_the_run(
    options: list[str], start: Start, write: Write
) -> None:
    process = start("run", "--inline", *options, write(TEN))
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "The page is at" in errors
    assert "until Ctrl-C" not in errors
