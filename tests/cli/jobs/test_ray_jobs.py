"""Runs the commands of docs/CLUSTERS.md through Ray's dashboard, on two nodes with a token.

They have their own environment: with the packages of `ray[default]` in this one, the Ray of every
other test would start its dashboard, too.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import pytest
import yaml

from tests.cli.jobs.connection import dropping
from tests.leftovers import left_behind, marked
from tests.structure.reading import ROOT

pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.timeout(600)]
PAGE = (ROOT / "docs/CLUSTERS.md").read_text(encoding="utf-8")
SCRIPTS = {
    "sunshower": "from sunshower.cli import main; main()",
    "ray": "from ray.scripts.scripts import main; main()",
}
ORDERS = """
    import os
    from collections.abc import Iterator
    from pathlib import Path

    from orders_source import COUNT
    from sunshower import JsonLines, Number, Records, Topology


    def priced(order: Number) -> Iterator[Number]:
        from prices.table import price  # only now: it is not sent with the code of the topology

        yield Number(price(order.value) + int(os.environ.get("SURCHARGE", "0")))


    topology = Topology("orders", workers=2)
    orders = topology.spout("orders", Records([Number(n) for n in range(COUNT)], type=Number))
    orders.shuffle().bolt("priced", priced, 2).shuffle().bolt("out", JsonLines("{out}"))
"""
PRICES = """
    from prices.table import price
    from sunshower import Counter, Number, Topology


    def check(number: Number) -> None:
        assert price(number.value) == 3 * number.value


    topology = Topology("prices", workers=2)
    topology.spout("numbers", Counter()).shuffle().bolt("check", check, 2)
"""
NUMBERS = """
    from orders_source import COUNT
    from sunshower import Counter, Number, Topology


    def check(number: Number) -> None:
        assert COUNT


    topology = Topology("numbers", workers=2)
    topology.spout("numbers", Counter()).shuffle().bolt("check", check, 2)
"""
TABLE = """
    from pathlib import Path


    def price(item: int) -> int:
        return item * int(Path("factor.txt").read_text())
"""
COUNT = 200


class Nodes(NamedTuple):
    """Two running nodes, and an environment that can reach them."""

    address: str
    dashboard: str
    environment: dict[str, str]

    def __call__(self, command: str, folder: Path, status: int = 0) -> str:
        """Run a command of the page in a folder. Returns what it prints."""
        done = subprocess.run(
            shlex.split(command),
            cwd=folder,
            env={**self.environment, "RAY_ADDRESS": self.dashboard},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def status(self, topology: str) -> dict[str, Any]:
        """The status of a topology, from a node."""
        command = f"sunshower status {topology} --json --address {self.address}"
        fields: dict[str, Any] = json.loads(self(command, Path("/")).splitlines()[-1])
        return fields


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment like this one, with the packages of `ray[default]`."""
    place = tmp_path_factory.mktemp("default")
    venv.create(place, symlinks=True)
    (site_packages,) = place.glob("lib/python*/site-packages")
    (site_packages / "here.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    pip = (sys.executable, "-m", "pip", "--quiet", "--python", str(place / "bin/python"))
    pins = str(ROOT / "constraints.txt")
    subprocess.run([*pip, "install", "-c", pins, "ray[default]"], check=True)
    for name, code in SCRIPTS.items():
        script = place / "bin" / name
        script.write_text(f"#!{place}/bin/python\n{code}\n", encoding="utf-8")
        script.chmod(0o755)
    return place / "bin"


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    """The folder for the files of the nodes. A job looks there for its Ray, and would otherwise
    find the Ray that another test started last. The path is short, because it is part of the paths
    of Unix sockets."""
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        yield folder


@pytest.fixture(scope="module")
def nodes(packages: Path, place: str) -> Iterator[Nodes]:
    environment = {
        **marked(),
        "RAY_TMPDIR": place,
        "PATH": f"{packages}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "a" * 64,
    }
    program = [packages / "python", "-m", "tests.cli.jobs.nodes"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(program, cwd=ROOT, env=environment, text=True, **pipes) as process:
        assert process.stdout is not None
        address, dashboard = process.stdout.readline().split()
        yield Nodes(address, f"http://{dashboard}", environment)
        process.communicate()
    assert not left_behind(environment)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with two topologies, modules and a file."""
    folder = tmp_path / "project"
    files = {
        "orders.py": dedent(ORDERS).replace("{out}", str(tmp_path / "out.jsonl")),
        "orders_source.py": f"COUNT = {COUNT}\n",
        "prices/__init__.py": "",
        "prices/table.py": dedent(TABLE),
        "prices/topology.py": dedent(PRICES),
        "factor.txt": "3",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def commands(start: str) -> list[str]:
    """The commands of the page's block that has this text, without comments."""
    (block,) = [text for text in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) if start in text]
    lines = re.sub(r"\\\n\s*", "", block).splitlines()
    return [line.partition("#")[0].strip() for line in lines if not line.startswith("export")]


def until(nodes: Nodes, topology: str, component: str, acked: int) -> dict[str, Any]:
    while (fields := nodes.status(topology))["components"][component]["acked"] < acked:
        assert fields["state"] in ("active", "finished"), fields
    return fields


def prices_in(file: Path) -> list[int]:
    return sorted(json.loads(line)["value"] for line in file.read_text().splitlines())


def test_two_topologies_of_a_folder_that_no_node_has(nodes: Nodes, project: Path) -> None:
    submit, submit_other, show, status, kill, kill_other = commands("sunshower submit project")
    here = project.parent
    assert "orders is active on 2 workers" in nodes(submit, here)
    assert "prices is active on 2 workers" in nodes(submit_other, here)
    shutil.rmtree(project)
    until(nodes, "orders", "orders", COUNT)
    assert prices_in(here / "out.jsonl") == [3 * n for n in range(COUNT)]
    fields = until(nodes, "prices", "numbers", 1)
    # The job has ended. A restarted worker has the files, too.
    os.kill(fields["workers"][1]["process"], signal.SIGKILL)
    while not (fields := nodes.status("prices"))["restarts"]:
        pass
    until(nodes, "prices", "numbers", fields["components"]["numbers"]["acked"] + 1)
    listed = nodes(show, here)
    assert "orders" in listed
    assert "prices" in listed
    assert "priced × 2" in nodes(status, here)
    assert "nothing was pending any more" in nodes(kill, here)
    assert "prices is gone" in nodes(kill_other, here)
    assert "There is no topology" in nodes(show, here)


@pytest.mark.parametrize("target", ["checked.py", "--working-dir . prices/checked.py"])
def test_an_upgrade_sends_the_new_code(nodes: Nodes, project: Path, target: str) -> None:
    file = project / target.split()[-1]
    file.write_text(dedent(NUMBERS), encoding="utf-8")
    nodes(f"sunshower submit {target}", project)
    until(nodes, "numbers", "numbers", 1)
    new = NUMBERS.replace("check, 2", "check, 3").replace("assert COUNT", "assert COUNT == 7")
    file.write_text(dedent(new), encoding="utf-8")
    (project / "orders_source.py").write_text("COUNT = 7\n", encoding="utf-8")
    assert "check: 2 → 3 tasks" in nodes(f"sunshower upgrade numbers {target}", project)
    fields = nodes.status("numbers")
    assert fields["components"]["check"]["parallelism"] == 3
    until(nodes, "numbers", "numbers", fields["components"]["numbers"]["acked"] + 1)
    nodes("sunshower kill numbers --now", project)


def test_a_runtime_environment_through_rays_own_command(nodes: Nodes, project: Path) -> None:
    (command,) = commands("ray job submit")
    command = command.replace("http://127.0.0.1:8265", nodes.dashboard)
    assert '"REGION": "north"' in command
    nodes(command.replace('"REGION": "north"', '"SURCHARGE": "7"'), project.parent)
    until(nodes, "orders", "orders", COUNT)
    nodes("sunshower kill orders", project.parent)
    assert prices_in(project.parent / "out.jsonl") == [3 * n + 7 for n in range(COUNT)]


def test_a_folder_that_is_sent_from_a_node_without_a_job(nodes: Nodes, project: Path) -> None:
    address = f"--address {nodes.address}"
    nodes(f"sunshower submit --working-dir . prices/topology.py {address}", project)
    shutil.rmtree(project)
    until(nodes, "prices", "numbers", 1)
    nodes(f"sunshower kill prices --now {address}", project.parent)


def test_an_interrupt_stops_the_command(nodes: Nodes, tmp_path: Path) -> None:
    code = "import os, threading\nprint('process', os.getpid(), flush=True)\n"
    (tmp_path / "endless.py").write_text(f"{code}threading.Event().wait()\n", encoding="utf-8")
    command = shlex.split(f"sunshower submit endless.py --address {nodes.dashboard}")
    with subprocess.Popen(
        command, cwd=tmp_path, env=nodes.environment, stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        while not (line := client.stdout.readline()).startswith("process"):
            assert line
        client.send_signal(signal.SIGINT)
        client.communicate()
    assert client.returncode
    while Path(f"/proc/{line.split()[1]}").exists():
        pass


def test_a_dropped_connection_does_not_stop_the_command(nodes: Nodes, tmp_path: Path) -> None:
    with dropping(nodes.dashboard, drops=5) as relay:
        output = nodes._replace(dashboard=relay.address)("sunshower list", tmp_path)
        assert relay.drops == 0
    assert "There is no topology" in output


def test_the_error_for_a_lost_connection_names_the_job_which_continues(
    nodes: Nodes, tmp_path: Path
) -> None:
    with dropping(nodes.dashboard, drops=1_000_000) as relay:
        output = nodes._replace(dashboard=relay.address)("sunshower list", tmp_path, status=1)
    command = re.search(r"may still be running: (ray job status \S+) --address", output)
    assert command is not None, output
    while "succeeded" not in (answer := nodes(command[1], tmp_path)):
        assert "stopped" not in answer.lower()
        assert "failed" not in answer


def test_errors_of_a_command_are_printed_by_the_client(nodes: Nodes, project: Path) -> None:
    (project / "orders_source.py").write_text("COUNT = unknown\n", encoding="utf-8")
    output = nodes("sunshower submit orders.py", project, status=1)
    assert "name 'unknown' is not defined" in output
    output = nodes("sunshower submit --working-dir prices orders.py", project, status=1)
    assert "is not in" in output
    output = nodes("sunshower kill nobody", project, status=1)
    assert "there is no topology 'nobody' on this cluster" in output
    assert "listens, on this machine" in nodes("sunshower ui", project, status=1)
    other = nodes._replace(environment={**nodes.environment, "RAY_AUTH_TOKEN": "b" * 64})
    output = other("sunshower list", project, status=1)
    assert "set RAY_AUTH_MODE=token" in output
    option = f"--address ray://{nodes.address}"
    assert "address of Ray's client" in nodes(f"sunshower list {option}", project, status=1)
    assert "no Ray answers" in nodes("sunshower list --address http://127.0.0.1:1", project, 1)


def test_the_probes_of_the_manifest_succeed(nodes: Nodes, tmp_path: Path) -> None:
    text = (ROOT / "deploy/kuberay/raycluster.yaml").read_text(encoding="utf-8")
    head = yaml.safe_load(text)["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    shell, option, probe = head["readinessProbe"]["exec"]["command"]
    without_agent = probe.partition("&&")[2].replace("http://localhost:8265", nodes.dashboard)
    assert "success" in nodes(shlex.join([shell, option, without_agent]), tmp_path)
