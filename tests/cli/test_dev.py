"""Tests of `sunshower dev`: starts real servers, and reports errors."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from sunshower.dev import units
from sunshower.dev.kafka import brokers_seen_from
from sunshower.dev.servers import HOST
from tests.conftest import Sunshower
from tests.dev.test_keeper import gone
from tests.leftovers import left_behind, marked

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _nothing_stays_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sunshower: Sunshower
) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield
    assert sunshower("dev", "down") == 0


def up(sunshower: Sunshower, capsys: Capture) -> dict[str, Any]:
    """The output of `status --json`."""
    capsys.readouterr()
    assert sunshower("dev", "status", "--json") == 0
    fields: dict[str, Any] = json.loads(capsys.readouterr().out)
    return fields


def refused(sunshower: Sunshower, capsys: Capture, *arguments: object, status: int) -> str:
    """The error message of a command that fails, in one line."""
    assert sunshower("dev", *arguments) == status
    return " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_zookeeper_comes_up_keeps_its_data_and_goes_down(
    sunshower: Sunshower, capsys: Capture, tmp_path: Path, releases: None
) -> None:
    command = ("dev", "up", "zookeeper", "--port", 0, "--folder", tmp_path / "data")
    for value in (None, b"kept"):
        assert sunshower(*command) == 0
        unit = up(sunshower, capsys)["zookeeper"]
        assert unit["answers"]
        assert Path(unit["logs"][0]).is_relative_to(tmp_path / "data")
        client = KazooClient(unit["address"], timeout=20)
        client.start(timeout=120)
        if value:
            assert client.get("/mine")[0] == value
        else:
            client.create("/mine", b"kept")
        client.stop()
        client.close()
        assert sunshower("dev", "down") == 0
        assert "zookeeper-3.9.5 is down. Its data is in" in capsys.readouterr().out
        assert gone(unit["keeper"])
        assert up(sunshower, capsys) == {}
    assert sunshower("dev", "down") == 0
    assert "Nothing is up." in capsys.readouterr().out


def test_a_kafka_comes_up_once_and_leaves_nothing(
    sunshower: Sunshower, capsys: Capture, releases: None
) -> None:
    assert sunshower("dev", "up", "kafka", "--port", 0) == 0
    output = capsys.readouterr()
    assert "kafka-4.3.1 is up.\n  bootstrap servers: 127.0.0.1:" in output.out
    assert "kafka: waiting for 1 of 1 brokers to answer …" in output.err
    unit = up(sunshower, capsys)["kafka"]
    assert brokers_seen_from(unit["address"], timeout_s=60) == {1}
    assert sunshower("dev", "up", "all", "--port", 0) == 0
    output = capsys.readouterr()
    assert "zookeeper-3.9.5 is up." in output.out
    assert "kafka-4.3.1 is up already, and stays as it is" in output.out
    assert sunshower("dev", "status") == 0
    assert "kafka-4.3.1 answers" in capsys.readouterr().out
    assert sunshower("dev", "down", "zookeeper") == 0
    assert up(sunshower, capsys) == {"kafka": unit}
    assert sunshower("dev", "down", "kafka") == 0
    assert gone(unit["keeper"])
    assert {file.name for file in units.state().iterdir()} == {"lock"}


def test_a_server_that_dies_is_seen_in_the_status(
    sunshower: Sunshower, capsys: Capture, releases: None
) -> None:
    assert sunshower("dev", "up", "zookeeper", "--port", 0) == 0
    unit = up(sunshower, capsys)["zookeeper"]
    children = Path(f"/proc/{unit['keeper']}/task/{unit['keeper']}/children").read_text()
    os.kill(int(children), 9)
    assert gone(int(children))
    assert not up(sunshower, capsys)["zookeeper"]["answers"]
    assert sunshower("dev", "status") == 0
    assert f"does not answer at {unit['address']}" in capsys.readouterr().out
    output = refused(sunshower, capsys, "up", "zookeeper", status=1)
    assert output.endswith("Stop it first: sunshower dev down zookeeper")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_up_that_is_ended_before_it_is_done_leaves_nothing(number: int, releases: None) -> None:
    environment = marked()
    command = subprocess.Popen(
        [sys.executable, "-m", "sunshower", "dev", "up", "kafka", "--port", "0"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert command.stderr
    for line in command.stderr:
        if "formatting" in line:
            break
    command.send_signal(number)
    command.communicate(timeout=120)
    assert left_behind(environment) == []
    assert not [file for file in units.state().iterdir() if file.name != "lock"]


def test_the_error_for_a_taken_port_names_the_port_and_a_remedy(
    sunshower: Sunshower, capsys: Capture, releases: None
) -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        output = refused(sunshower, capsys, "up", "zookeeper", "--port", port, status=1)
    assert f"port {port} is taken: zookeeper-3.9.5 cannot listen there." in output
    assert "Choose another: sunshower dev up zookeeper --port N (0: any free one)." in output
    assert up(sunshower, capsys) == {}


def test_the_error_for_a_folder_that_cannot_be_made_names_it(
    sunshower: Sunshower, capsys: Capture, tmp_path: Path, releases: None
) -> None:
    (tmp_path / "file").touch()
    command = ("up", "zookeeper", "--port", 0, "--folder", tmp_path / "file" / "data")
    output = refused(sunshower, capsys, *command, status=1)
    assert output.endswith("file/data/zookeeper cannot be a server's folder: Not a directory")
    assert up(sunshower, capsys) == {}


def test_without_java_nothing_starts(
    sunshower: Sunshower, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "nowhere")
    output = refused(sunshower, capsys, "up", "kafka", status=1)
    assert "JAVA_HOME is nowhere, and there is no bin/java in it. Unset it" in output


def test_a_server_that_fails_shows_the_end_of_its_log(
    sunshower: Sunshower,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    releases: None,
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho this Java is too old\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    output = refused(sunshower, capsys, "up", "kafka", "--port", 0, status=1)
    assert "format-1 has failed. The end of its log," in output
    assert output.endswith("this Java is too old")
    assert up(sunshower, capsys) == {}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["up", "rabbit"], "'rabbit' is not one of"),
        (["up", "zookeeper", "--brokers", 3], "ZooKeeper has no brokers"),
        (["up", "zookeeper", "--on-zookeeper"], "ZooKeeper has no brokers"),
        (["up", "all", "--port", 9092], "of which of the two? Start them one by one"),
        (["up", "kafka", "--brokers", 0], "equal to 1|not in the range 1<=x<=9"),
        (["up", "kafka", "--port", 70_000], "equal to 65000|not in the range 0<=x<=65000"),
        (["up", "kafka", "--folder", __file__], "is a file"),
    ],
)
def test_wrong_usage_is_reported(
    sunshower: Sunshower, capsys: Capture, arguments: list[object], why: str
) -> None:
    message = refused(sunshower, capsys, *arguments, status=2)
    assert any(text in message for text in why.split("|"))  # typer's, or of older versions click's


def test_without_servers_the_commands_say_that_nothing_is_up(
    sunshower: Sunshower, capsys: Capture
) -> None:
    assert sunshower("dev", "status") == 0
    assert "Nothing is up. Start it with: sunshower dev up kafka" in capsys.readouterr().out
    assert sunshower("dev", "down", "kafka") == 0
    assert "kafka is not up." in capsys.readouterr().out


def test_help_has_an_example(sunshower: Sunshower, capsys: Capture) -> None:
    assert sunshower("dev", "up", "--help") == 0
    assert "sunshower dev up kafka --brokers 3" in capsys.readouterr().out
