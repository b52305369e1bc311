"""Tests of the command and the folder that `submit` and `upgrade` send to a dashboard."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from sunshower.actors import ray_jobs
from tests.conftest import Sunshower


class Sent(NamedTuple):
    address: str
    arguments: list[str]
    folder: Path | None


Send = Callable[..., Sent]


@pytest.fixture
def send(sunshower: Sunshower, monkeypatch: pytest.MonkeyPatch) -> Iterator[Send]:
    """Run a command with the address of a dashboard. Returns what it sends there."""
    sent: list[Sent] = []

    def run_as_job(
        address: str, arguments: Sequence[str], _: Callable[[str], None], folder: Path | None = None
    ) -> int:
        sent.append(Sent(address, [*arguments], folder))
        return 0

    def run(*arguments: str) -> Sent:
        words = [*arguments, "--address", address]
        monkeypatch.setattr(sys, "argv", ["sunshower", *words])
        assert sunshower(*words) == 0
        return sent.pop()

    monkeypatch.setattr(ray_jobs, "run_as_job", run_as_job)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        yield run


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a topology file in a package; the current folder is above it."""
    file = tmp_path / "project/prices/topology.py"
    file.parent.mkdir(parents=True)
    file.touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "project"


def test_the_folder_of_the_file_is_sent(send: Send, project: Path) -> None:
    file = "project/prices/topology.py"
    sent = send("submit", file, "--inactive")
    assert sent[1:] == (["submit", "topology.py", "--inactive"], project / "prices")
    sent = send("upgrade", "prices", f"{file}:other", "--dry-run")
    assert sent[1:] == (["upgrade", "prices", "topology.py:other", "--dry-run"], project / "prices")


@pytest.mark.parametrize("option", [["--working-dir", "project"], ["--working-dir=project"]])
def test_another_folder_is_sent_and_the_file_named_in_it(
    send: Send, project: Path, option: list[str]
) -> None:
    file = "project/prices/topology.py"
    assert send("submit", *option, file)[1:] == (["submit", "prices/topology.py"], project)
    sent = send("upgrade", *option, "prices", file)
    words = ["upgrade", "prices", "prices/topology.py", "--working-dir", "."]
    assert sent[1:] == (words, project)  # `.`: the folder whose modules are shipped to workers
