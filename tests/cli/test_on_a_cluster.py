"""Tests of the commands for a running cluster, from submit to kill, on a real Ray."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.conftest import Command, Write
from tests.conftest import Sunshower
from tests.guarantee.deaths import until

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

pytestmark = pytest.mark.ray

NUMBERS = """
    from spelling import double

    def twice(number: Number) -> Iterator[Number]:
        yield Number(double(number.value))

    def drop(number: Number) -> None: ...

    topology = Topology("numbers", spout_pending=64)
    doubled = topology.spout("count", Counter({total}), 2).shuffle().bolt("twice", twice, 2)
    doubled.shuffle().bolt("drop", drop, parallelism=2)
"""


# Slow: an endless source would need all processors.
DOUBLE = """
import time

def double(n):
    time.sleep(0.002)
    return {result}
"""


def file(write: Write, folder: Path, total: str = "") -> Path:
    """A topology file with another module in its folder, which no worker can import by name."""
    (folder / "spelling.py").write_text(DOUBLE.format(result="2 * n"))
    return write(NUMBERS.format(total=total))


@pytest.mark.ray
def test_a_topology_runs_on_a_cluster_from_submit_to_kill(
    command: Command, here: Command, ray_cluster: RayCluster, write: Write, tmp_path: Path
) -> None:
    def status() -> dict[str, Any]:
        fields: dict[str, Any] = json.loads(here("status", "numbers", "--json").stdout)
        return fields

    path = file(write, tmp_path)
    output = command("submit", path, "--inactive", "--set", "message_timeout_s=20").stdout
    assert "numbers is inactive on 2 workers" in output
    path.unlink()  # the workers have the code
    (tmp_path / "spelling.py").unlink()
    assert status()["components"]["count"]["emitted"] == 0

    assert "numbers is active" in here("activate", "numbers").stdout
    assert "inactive" not in here("list").stdout
    run = ray_cluster.find("numbers")
    until(lambda: run.snapshot().component("drop").executed > 0)
    fields = status()
    assert fields["state"] == "active"
    assert fields["components"]["drop"]["executed"]
    assert fields["components"]["count"]["parallelism"] == 2
    assert [len(worker["tasks"]) for worker in fields["workers"]] == [4, 4]

    output = here("rebalance", "numbers", "--workers", 3).stdout
    assert "numbers has 3 workers (before: 2)" in output
    assert "count × 2" in here("status", "numbers").stdout
    output = here("rebalance", "numbers", "--tasks", "twice=3", "--ackers", 3).stdout
    assert "10 tasks (before: 8)" in output
    error_text = here("rebalance", "numbers", "--tasks", "count=3", status=1).stderr
    assert "cannot have 3 tasks of 'count': each task of a spout has its own part" in error_text
    write(f"{NUMBERS.format(total='')}    doubled.shuffle().bolt('drop_too', drop)\n")
    (tmp_path / "spelling.py").write_text(DOUBLE.format(result="n + n"))
    output = here("upgrade", "numbers", path, "--dry-run").stdout
    assert "drop_too is new: 1 task" in output
    assert "numbers would have the new code" in output
    output = command("upgrade", "numbers", path).stdout
    assert "twice: keeps the 3 tasks that a rebalance has made" in output
    assert "workers: the 3 that it has are kept" in output
    assert "numbers has the new code" in output
    assert "drop_too × 1" in here("status", "numbers").stdout
    assert "numbers is inactive" in here("deactivate", "numbers").stdout
    assert status()["state"] == "inactive"
    assert len({worker["process"] for worker in status()["workers"]}) == 3

    savepoint = tmp_path / "numbers.savepoint"
    output = here("kill", "numbers", "--keep", savepoint).stdout
    assert f"`sunshower submit FILE --resume {savepoint}` continues it" in output
    assert "numbers is active" in command("submit", path, "--resume", savepoint).stdout
    error_text = here("kill", "numbers", "--keep", savepoint, status=2).stderr
    assert "is there already" in error_text
    done = here("kill", "numbers", "--wait", 60)
    assert "Draining numbers" in done.stderr
    assert "nothing was pending any more" in done.stdout
    assert "There is no topology" in here("list").stdout


@pytest.mark.ray
def test_a_finished_topology_is_listed_until_it_is_killed(
    here: Command, write: Write, tmp_path: Path
) -> None:
    path = file(write, tmp_path, total="500")
    here("submit", path)
    until(lambda: "finished" in here("list").stdout)
    output = here("list").stdout
    assert "1,000" in output or "500" in output
    error_text = here("deactivate", "numbers", status=1).stderr
    assert "'numbers' is finished" in error_text
    assert "possible are: drain, kill" in error_text
    assert "is there already" in here("submit", path, status=1).stderr
    assert "nothing was finished" in here("kill", "numbers", "--now").stdout
    assert "There is no topology" in here("list").stdout


@pytest.mark.ray
def test_a_failed_topology_shows_its_error_until_it_is_killed(here: Command, write: Write) -> None:
    path = write("""
        def invert(number: Number) -> None:
            1 / number.value

        topology = Topology("inverses", attempts_max=2)
        topology.spout("numbers", Counter(3)).shuffle().bolt("invert", invert)
    """)
    here("submit", path, "--inactive")
    here("activate", "inverses")
    until(lambda: json.loads(here("status", "inverses", "--json").stdout)["state"] == "failed")
    assert "ZeroDivisionError" in here("status", "inverses").stdout
    assert "ZeroDivisionError" in here("activate", "inverses", status=1).stderr
    assert "inverses is gone" in here("kill", "inverses").stdout


@pytest.mark.ray
def test_an_unknown_name(here: Command) -> None:
    for word in ("status", "activate", "deactivate", "kill", "rebalance"):
        error_text = here(word, "nobody", status=1).stderr
        assert "there is no topology 'nobody' on this cluster; none is there" in error_text


@pytest.mark.parametrize("command", ["list", "status t", "kill t", "submit"])
def test_an_address_without_a_cluster(
    command: str, write: Write, sunshower: Sunshower, capsys: pytest.CaptureFixture[str]
) -> None:
    words = command.split()
    if command == "submit":
        words.append(str(write('topology = Topology("t")\ntopology.spout("n", Counter(1))')))
    assert sunshower(*words, "--address", "127.0.0.1:1") == 1
    error_text = capsys.readouterr().err
    assert "no Ray answers at 127.0.0.1:1" in error_text
    assert "ray start --head" in error_text


@pytest.mark.parametrize("command", ["list", "status t"])
def test_the_address_of_a_ray_that_is_gone(
    command: str,
    tmp_path: Path,
    sunshower: Sunshower,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A killed Ray leaves its address in a file."""
    import ray
    from ray._private import services

    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # other tests have a Ray
    monkeypatch.setattr(services, "find_gcs_addresses", set)
    monkeypatch.setattr("sunshower.actors.cluster.start_ray", no_start)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    file = tmp_path / "ray/ray_current_cluster"
    file.parent.mkdir()
    file.write_text("127.0.0.1:1")
    assert sunshower(*command.split(), "--address", "auto") == 1
    error_text = capsys.readouterr().err
    assert "no Ray answers at 127.0.0.1:1" in error_text
    assert "--address HOST:PORT" in error_text


def no_start(*arguments: object) -> None:
    raise AssertionError("Ray itself would try for ten seconds")
