"""Runs the commands and the file of docs/KAFKA.md, one after the other, on a real broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sunshower.dev.kafka import Kafka
from tests.conftest import Sunshower
from tests.docs.pages import blocks, commands, page, place_programs
from tests.structure.reading import ROOT

PAGE = page("KAFKA")
WITHIN_S = 150.0


def run_until_all_is_read(arguments: list[str], kafka: Kafka) -> str:
    """Run `sunshower run …` in its own process; interrupt it when its group has no lag."""
    from sunshower.errors import KafkaError
    from sunshower.kafka.partitions.broker_offsets import lags
    from sunshower.kafka.partitions.ports import total

    command = [sys.executable, "-m", "sunshower", *arguments]
    output = subprocess.STDOUT
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=output, text=True) as running:
        end_s = time.monotonic() + WITHIN_S
        lag = 1
        while lag and running.poll() is None and time.monotonic() < end_s:
            try:
                lag = total(lags({"bootstrap.servers": kafka.bootstrap}, "word-count", ["lines"]))
            except KafkaError:
                lag = 1
        running.send_signal(signal.SIGINT)
        printed, _ = running.communicate(timeout=WITHIN_S)
    assert lag == 0, printed
    assert running.returncode == 0, printed
    return printed


@pytest.mark.timeout(600)
def test_every_command_of_the_page_does_what_it_says(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sunshower: Sunshower
) -> None:
    """The broker of the test replaces that of `dev up`, which has its own tests."""
    _, topics, *_ = blocks(PAGE, "python")  # the other blocks have their own tests
    place_programs(PAGE, tmp_path, monkeypatch, also=["examples"])
    monkeypatch.setenv("KAFKA", kafka.bootstrap)
    path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    monkeypatch.setenv("PYTHONPATH", path)
    topics = topics.replace("127.0.0.1:9092", kafka.bootstrap)
    subprocess.run([sys.executable, "-c", topics], check=True)
    done = []
    for words in commands(PAGE):
        program, *arguments = words
        if program == "make" or arguments[:1] == ["dev"]:
            continue
        if program == "python":
            subprocess.run([sys.executable, *arguments], check=True)
        elif arguments[0] == "run":
            assert "10,000 tuples taken in, all of them acked" in run_until_all_is_read(
                arguments, kafka
            )
        else:
            here = ["--bootstrap", kafka.bootstrap] if arguments[0] == "kafka" else []
            assert sunshower(*arguments, *here) == 0, words
        done.append(words[:2])
    assert len(done) == 4
