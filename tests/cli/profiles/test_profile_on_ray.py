"""Tests of `sunshower profile` on a real Ray, with py-spy and without it."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from sunshower.actors import profile_recording
from sunshower.actors.profiles import find_py_spy
from sunshower.cli.profiles import _write
from sunshower.errors import SourceError
from tests.cli.conftest import Command, PrintedBy, Start, Write, read_until

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

CODE = """
    class Burn(Bolt[Number, None]):
        def process(self, record: Number) -> None:
            burn_time(record.value)

    def burn_time(value: int) -> int:
        return sum(factor * value % 7 for factor in range(2_000))

    topology = Topology("fire", workers=1)
    numbers = topology.spout("numbers", Counter())
    numbers.shuffle().bolt("burn", Burn())
"""


def user_samples(path: Path) -> int:
    lines = path.read_text().splitlines()
    return sum(int(line.rpartition(" ")[2]) for line in lines if ";burn_time (" in line)


@pytest.mark.ray
@pytest.mark.long
def test_a_running_worker_is_profiled_with_and_without_py_spy(
    here: Command, write: Write, tmp_path: Path
) -> None:
    here("submit", write(CODE))
    profile = ("profile", "fire", "--component", "burn", "--seconds", "2", "--format", "collapsed")

    inside = here(*profile, "--in-process", "--output", tmp_path / "inside.txt").stdout
    assert user_samples(tmp_path / "inside.txt") > 10
    assert "by a thread in the process" in inside
    assert f"samples are in {tmp_path / 'inside.txt'}" in inside.replace("\n", "")

    done = here(*profile, "--output", tmp_path / "outside.txt")
    assert user_samples(tmp_path / "outside.txt") > 10
    if "was sampled by a thread" not in done.stderr:
        assert find_py_spy() is not None
        assert "by py-spy" in done.stdout

    graph = tmp_path / "graph.svg"
    here("profile", "fire", "--seconds", "1", "--output", graph)
    assert "burn_time" in graph.read_text()
    message = here("profile", "fire", "--component", "bern", status=1).stderr
    assert "topology 'fire' has no component 'bern'; it has numbers, burn" in message
    assert "there is no topology 'ice'" in here("profile", "ice", status=1).stderr


@pytest.mark.ray
@pytest.mark.long
def test_a_worker_that_dies_is_profiled_again_after_its_restart(
    here: Command, ray_cluster: RayCluster, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    here("submit", write(CODE))
    run, looks, killed_s, dead_s = ray_cluster.find("fire"), list[float](), 0.0, 0.0

    def kill_once(passed_s: float) -> None:
        nonlocal killed_s, dead_s
        looks.append(passed_s)
        if len(looks) == 2:
            run.kill_worker(0)
            killed_s = time.monotonic()
        elif len(looks) > 2 and not run.snapshot().restarts:
            dead_s = time.monotonic() - killed_s

    # The time of the profile stops until the worker has started again, however long that takes.
    clock = {**vars(time), "monotonic": lambda: time.monotonic() - dead_s}
    monkeypatch.setattr(profile_recording, "time", SimpleNamespace(**clock))
    recorded = profile_recording.record(run.id, [0], 10.0, in_process=True, look=kill_once)
    assert recorded.samplers.keys() == {0}
    assert recorded.missing == {}
    assert any(";burn_time (" in stack for stack in recorded.stacks)


@pytest.mark.ray
def test_a_topology_that_has_ended_is_refused(here: Command, write: Write, tmp_path: Path) -> None:
    here("submit", write(CODE.replace("Counter()", "Counter(1)")))
    end_s = time.monotonic() + 120
    while "finished" not in here("list").stdout:
        assert time.monotonic() < end_s
    message = here("profile", "fire", "--output", tmp_path / "fire.svg", status=1).stderr
    assert "topology 'fire' is finished: there is nothing to record" in message
    assert not (tmp_path / "fire.svg").exists()


@pytest.mark.ray
@pytest.mark.long
def test_an_interrupt_ends_the_profile_and_leaves_nothing(
    here: Command, start: Start, write: Write, tmp_path: Path
) -> None:
    import ray

    here("submit", write(CODE))
    address = ray.get_runtime_context().gcs_address
    target, folder = tmp_path / "fire.svg", set(tmp_path.iterdir())
    profile = ("profile", "fire", "--seconds", "300", "--output", target)
    recording = start(*profile, "--address", address)
    read_until(recording.stderr, "Recording")
    os.killpg(recording.pid, signal.SIGINT)
    assert recording.wait(120) == 130
    assert set(tmp_path.iterdir()) == folder
    end_s = time.monotonic() + 120  # for the workers to accept the next profile, and py-spy to end
    while is_recording(here, tmp_path):
        assert time.monotonic() < end_s
    assert py_spies() == []


def is_recording(here: Command, folder: Path) -> bool:
    """Whether the workers are still recording another profile."""
    with suppress(AssertionError):
        here("profile", "fire", "--seconds", "1", "--output", folder / "next.svg")
        return False
    return True


def py_spies() -> list[str]:
    """The processes of py-spy that record for 300 s."""
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode().split("\0")
        except OSError:
            continue  # it has ended
        if words[0].endswith("py-spy") and "300" in words:
            commands.append(" ".join(words))
    return commands


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--seconds", "0.5"), "--seconds 0.5 is not between 1 and 300"),
        (("--seconds", "301"), "--seconds 301 is not between 1 and 300"),
        (("--seconds", "nan"), "--seconds nan is not between 1 and 300"),
        (("--output", "{}"), "is a folder; give the name of a file"),
        (("--output", "{}/no/fire.svg"), "there is no folder"),
    ],
)
def test_wrong_options_are_refused_before_the_profile(
    printed_by: PrintedBy, tmp_path: Path, arguments: tuple[str, str], message: str
) -> None:
    option, value = arguments
    printed = printed_by("profile", "fire", option, value.format(tmp_path), status=1)
    assert message in printed.err.replace("\n", " ")


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"fire\.svg cannot be written"):
        _write(Path("/proc/fire.svg"), "text")
    target = tmp_path / "fire.svg"
    target.mkdir()
    (target / "kept").touch()
    with pytest.raises(SourceError, match=r"fire\.svg cannot be written"):
        _write(target, "text")
    assert [path.name for path in tmp_path.iterdir()] == ["fire.svg"]
