"""Runs the commands of docs/PIPELINE.md, kills included, on a real Ray, Kafka and Spark."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sunshower.dev.servers import Ports
from tests.spark.conftest import SPARK_4, require_spark
from tests.structure.reading import ROOT

if TYPE_CHECKING:
    from sunshower.actors.cluster import RayCluster

PAGE = (ROOT / "docs/PIPELINE.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ELSEWHERE = ("make ", "source ", "ray ")  # the test has an environment and a Ray


class Shell:
    """Runs commands in a folder, and keeps the variables that they set."""

    def __init__(self, folder: Path, **environment: str) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._folder = folder
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path, **environment}

    def __call__(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command], cwd=self._folder, env=self.environment, check=False,
            capture_output=True, text=True, timeout=1_000,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def json(self, command: str) -> Any:
        return json.loads(self(f"{command} --json"))


@pytest.fixture
def shell(ray_cluster: RayCluster, releases: None, tmp_path: Path) -> Iterator[Shell]:
    import ray

    require_spark()
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    ports = Ports()
    port = ports.claim()  # until the end: the broker is down for a while
    page_shell = Shell(
        tmp_path,
        KAFKA=f"127.0.0.1:{port}",
        RAY_ADDRESS=ray.get_runtime_context().gcs_address,
        XDG_STATE_HOME=str(tmp_path / "state"),
        PORT=str(port),
    )
    yield page_shell
    page_shell("sunshower dev down")
    for topology in ray_cluster.runs():
        ray_cluster.find(topology).stop()
    ports.release()


def worker_of_spark(shell: Shell) -> str:
    workers = shell.json("sunshower status kafka-to-spark")["workers"]
    (process,) = [worker["process"] for worker in workers if "spark[0]" in worker["tasks"]]
    return str(process)


@pytest.mark.spark
@pytest.mark.servers
@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_table_is_right_after_every_kill_of_the_page(shell: Shell) -> None:
    output = ""
    for command in "".join(BLOCK.findall(PAGE)).splitlines():
        if command.startswith(ELSEWHERE):
            continue
        if command.startswith("WORKER="):
            shell.environment["WORKER"] = worker_of_spark(shell)
        elif command.startswith("BROKER="):
            (process,) = shell.json("sunshower dev status")["kafka"]["processes"]
            shell.environment["BROKER"] = str(process)
        else:
            if "pgrep" in command:  # the page says to wait
                shell("until pgrep -P $WORKER java; do sleep 0.2; done")
            output = shell(command.replace("dev up kafka", "dev up kafka --port $PORT"))
            if command.endswith("check"):
                assert "The table is correct: " in output
            elif "totals.py" in command:
                assert "euros in" in output


@pytest.mark.spark
@pytest.mark.servers
@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("on", ["local", *(() if SPARK_4 else ("cluster",))])
def test_the_experiment_of_the_page_holds(on: str, releases: None, tmp_path: Path) -> None:
    """It runs in its own process, with its own broker and Ray."""
    require_spark()
    experiment = ROOT / "examples/kafka_to_spark/kills.py"
    shell = Shell(tmp_path)
    options = f"--cluster ray --set on={on} --folder {tmp_path}"
    shell(f"sunshower experiment run {experiment} {options}")
    (results,) = tmp_path.glob("kafka-to-spark/2*/results.json")
    assert json.loads(results.read_text())["figures"]["faults"] == 5
