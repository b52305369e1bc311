"""Tests of `sunshower logs` on a real Ray: events, and records that user code logs."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

import pytest

from sunshower.cli.logs import line_text
from sunshower.runtime.events.log_lines import LogLine
from tests.cli.conftest import Command, Start, Write

CODE = """
    import logging
    import time

    LOG = logging.getLogger("shop")

    class Check(Bolt[Number, None]):
        def process(self, record: Number) -> None:
            time.sleep(0.02)
            LOG.warning("number %d", record.value)
            print("checked", record.value)
            if record.value == 3:
                raise ValueError("three")

    topology = Topology("shop", workers=1)
    numbers = topology.spout("numbers", Counter())
    numbers.shuffle().bolt("check", Check())
"""


def lines_of(here: Command, *how: str) -> list[dict[str, Any]]:
    printed = here("logs", "shop", "--json", *how).stdout
    # This process shows the output of its Ray, too.
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


@pytest.mark.ray
@pytest.mark.long
def test_events_and_records_of_user_code_are_listed(here: Command, write: Write) -> None:
    here("submit", write(CODE))
    wanted, end_s = {"started", "failed", "log", "output", "repeated"}, time.time() + 120
    lines = lines_of(here)
    while not wanted <= {line["event"] for line in lines}:
        assert time.time() < end_s, lines
        lines = lines_of(here)
    assert [line["number"] for line in lines] == sorted(line["number"] for line in lines)
    number = next(line for line in lines if line["text"] == "number 0")
    assert (number["component"], number["task"], number["worker"]) == ("check", 0, 0)
    assert (number["logger"], number["level"]) == ("shop", "warning")
    printed = next(line for line in lines if line["text"] == "checked 0")
    assert (printed["component"], printed["task"], printed["worker"]) == ("check", 0, 0)
    assert (printed["logger"], printed["level"]) == ("stdout", "info")
    failed = next(line for line in lines if line["event"] == "failed")
    assert (failed["component"], failed["task"]) == ("check", 0)
    assert "ValueError: three" in failed["text"]
    records = [line for line in lines if line["event"] == "log"]
    assert not [line for line in records if line["text"].startswith("message ")], "not twice"
    assert {line["component"] for line in lines_of(here, "--component", "check")} == {"check"}
    text = here("logs", "shop").stdout
    assert "warning shop check[0]: number 0\n" in text
    assert "info    stdout check[0]: checked 0\n" in text
    refused = here("logs", "shop", "--component", "chekc", status=1).stderr
    assert "topology 'shop' has no component 'chekc'; it has numbers, check" in refused


@pytest.mark.ray
def test_follow_continues_until_it_is_interrupted(
    here: Command, start: Start, write: Write
) -> None:
    import ray

    here("submit", write(CODE.replace("== 3", "== -1")))
    address = ray.get_runtime_context().gcs_address
    following = start("logs", "shop", "--follow", "--address", address)
    assert following.stdout is not None
    for line in following.stdout:
        if "command: deactivate" in line:
            break
        if "started" in line:
            here("deactivate", "shop")
    os.killpg(following.pid, signal.SIGINT)
    assert following.wait(120) == 130


def test_one_line_has_place_count_and_no_traceback() -> None:
    line = LogLine(
        0.0, "error", "failed", "exception: gone\nTraceback …", "store", 1, 0, count=1200
    )
    assert line_text(line).endswith(" error   failed store[1]: exception: gone (1,200 times)")
    line = LogLine(0.0, "info", "started", "worker 1 runs store[0]", worker=1)
    assert line_text(line).endswith(" info    started worker 1: worker 1 runs store[0]")
