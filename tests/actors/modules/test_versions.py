"""Versions of a program whose modules have the same names, in one process: each has its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sunshower import run_inline
from sunshower.clock import ManualClock
from sunshower.errors import LifecycleError
from sunshower.experiments.runner.loading import load
from sunshower.simulation.cluster import SimCluster
from sunshower.topologies.topology import Topology
from tests.actors.modules.programs import write

VERSIONED = {
    "goods/__init__.py": "",
    "goods/events.py": """
from typing import NamedTuple

VERSION = <version>

class Sold(NamedTuple):
    n: int
""",
    "goods/plugin.py": "from goods.events import VERSION, Sold\n",
    "sold.py": """
import importlib
from goods import events
from sunshower import JsonLines, Records, Topology

def numbers():
    for n in range(<count>):
        yield events.Sold(n)

class Check:
    def prepare(self, context) -> None:
        import goods.events
        if goods.events.VERSION == "bad":
            raise ValueError("this version does not open")

    def __call__(self, record: events.Sold) -> list:
        import goods.events
        plugin = importlib.import_module("goods.plugin")
        same = goods.events is events and plugin.Sold is events.Sold is type(record)
        return [(record.n, goods.events.VERSION, plugin.VERSION, same)]

topology = Topology("sold", workers=2, spout_pending=10)
sold = topology.spout("sold", Records(numbers, type=events.Sold))
checked = sold.shuffle().bolt("check", Check(), fields=("n", "version", "plug_in", "same"))
checked.shuffle().bolt("out", JsonLines(<out>))
""",
}


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in ("goods", "sold")]:
        del sys.modules[name]


def lines(folder: Path) -> list[list[object]]:
    return [[*json.loads(line).values()] for line in (folder / "out.jsonl").open()]


def program(folder: Path, version: str, count: int) -> Path:
    out = str(folder / "out.jsonl")
    return write(folder / version, VERSIONED, version=version, out=out, count=count)


def loaded(folder: Path, version: str, count: int = 200) -> Topology:
    files = program(folder, version, count)
    return load(str(files / "sold.py")).topology


def imported(folder: Path, version: str) -> Topology:
    """As by a program that imports two versions itself."""
    files = program(folder, version, 200)
    sys.path.insert(0, str(files))
    for name in [name for name in sys.modules if name.partition(".")[0] in ("goods", "sold")]:
        del sys.modules[name]
    import sold  # type: ignore[import-not-found]

    topology: Topology = sold.topology
    return topology


def test_each_version_that_runs_inline_has_its_own_modules(tmp_path: Path) -> None:
    for make in (loaded, imported):
        first, second = make(tmp_path, "1"), make(tmp_path, "2")
        now = sys.modules["goods.events"]
        for topology, version in ((first, "1"), (second, "2"), (first, "1")):
            run_inline(topology.graph(), clock=ManualClock())
            assert lines(tmp_path) == [[n, version, version, True] for n in range(200)]
            (tmp_path / "out.jsonl").unlink()
            assert sys.modules["goods.events"] is now
            assert sys.path[0] == str(tmp_path / "2")


def test_each_version_of_an_upgrade_in_the_simulator_has_its_own_modules(tmp_path: Path) -> None:
    first, bad, second = (loaded(tmp_path, version, 1 << 30) for version in ("1", "bad", "2"))
    with SimCluster(3) as cluster:
        run = cluster.submit(first.graph())
        with pytest.raises(LifecycleError, match="this version does not open"):
            run.upgrade(bad.graph())
        run.upgrade(second.graph())
        assert not run.wait(0.1)
        run.kill(60)
    rows = lines(tmp_path)
    assert {tuple(versions) for _, *versions in rows} == {("1", "1", True), ("2", "2", True)}


def test_two_topologies_with_modules_of_the_same_names_run_side_by_side(tmp_path: Path) -> None:
    first, second = loaded(tmp_path / "a", "1"), loaded(tmp_path / "b", "2")
    with SimCluster(5) as cluster:
        second.id = "sold-2"
        runs = [cluster.submit(topology.graph()) for topology in (first, second)]
        assert all(run.wait(600) for run in runs)
    for folder, version in ((tmp_path / "a", "1"), (tmp_path / "b", "2")):
        assert [[*row] for row in sorted(map(tuple, lines(folder)))] == [
            [n, version, version, True] for n in range(200)
        ]
