"""Clients of two releases on one Ray: run by test_submits.py.

The other release is a copy of the package with another protocol.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from ray.cluster_utils import Cluster

from sunshower import versions
from tests.actors.programs import submitter

ROOT = Path(__file__).parents[3]
OTHER = versions.PROTOCOL + 1
TOPOLOGY = """
from sunshower import Counter, Number, Topology

def drop(number: Number) -> None: ...

topology = Topology("{name}")
topology.spout("numbers", Counter()).shuffle().bolt("drop", drop)
"""


def other_release(folder: Path) -> Path:
    """The folder of a copy that has another protocol."""
    shutil.copytree(ROOT / "sunshower", folder / "other" / "sunshower")
    file = folder / "other" / "sunshower" / "versions.py"
    text = file.read_text(encoding="utf-8")
    ours, theirs = f"PROTOCOL = {versions.PROTOCOL} ", f"PROTOCOL = {OTHER} "
    assert ours in text
    file.write_text(text.replace(ours, theirs), encoding="utf-8")
    return folder / "other"


def command(code: Path, address: str, *words: str) -> tuple[int, str]:
    """Run `sunshower …` of one release. Returns its exit status and its output."""
    done = subprocess.run(
        [sys.executable, "-m", "sunshower", *words, "--address", address],
        cwd=code,
        env={**os.environ, "PYTHONPATH": str(code), "COLUMNS": "1000"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


def submit_from_elsewhere(other: Path, address: str) -> str:
    """Submit with the other release, from a folder that the cluster's processes do not see, as on
    another machine: so they have this release."""
    with subprocess.Popen(
        [sys.executable, submitter.__file__, address, "mixed"],
        env={**os.environ, "PYTHONPATH": str(other)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "ready\n"
        other.rename(other.with_name("hidden"))
        output, _ = client.communicate("\n")
        other.with_name("hidden").rename(other)
    return output


def main(folder: Path) -> None:
    other = other_release(folder)
    nodes = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    try:
        check(nodes.address, folder, {"here": ROOT, "there": other})
    finally:
        nodes.shutdown()


def check(address: str, folder: Path, releases: dict[str, Path]) -> None:
    """Each release runs a topology, lists that of the other, and cannot query or change it."""
    numbers = {"here": versions.PROTOCOL, "there": OTHER}
    for name, code in releases.items():
        file = folder / f"{name}.py"
        file.write_text(TOPOLOGY.format(name=name), encoding="utf-8")
        status, output = command(code, address, "submit", str(file))
        assert status == 0, output
        assert "Start its head with: ray start --head --system-config='{" in output, output
    for name, asked in (("here", "there"), ("there", "here")):
        for word in ("status", "kill", "deactivate", "rebalance"):
            status, output = command(releases[name], address, word, asked)
            assert status == 1, output
            sentence = f"has version {numbers[asked]}, and this release of sunshower uses version"
            assert f"{sentence} {numbers[name]}: install the release" in output, output
    output = submit_from_elsewhere(releases["there"], address)
    refusal = output.strip().splitlines()[-1]
    assert refusal.startswith("refused: the topology 'mixed', which its master has found, "), output
    assert f"has version {OTHER}, and this release" in refusal, output
    assert f"uses version {versions.PROTOCOL}: install the release" in refusal, output
    for name, code in releases.items():
        assert "here" in command(code, address, "list")[1]
        assert "mixed" not in command(code, address, "list")[1]
        status, output = command(code, address, "kill", name, "--now")
        assert status == 0, output
    assert "There is no topology" in command(ROOT, address, "list")[1]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
