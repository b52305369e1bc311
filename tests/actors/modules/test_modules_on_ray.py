"""A program of several modules on Ray: run, upgraded, rolled back, kept and resumed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sunshower.actors.cluster import RayCluster
from sunshower.actors.shipping import ship
from sunshower.errors import LifecycleError
from sunshower.experiments.runner.loading import load
from sunshower.runtime.cluster import Run
from sunshower.topologies.graph import Graph
from tests.actors.modules.programs import PACKAGE, write
from tests.guarantee.deaths import until

# Counts records, and keeps one: with the classes of a module that is sent as source, and of the
# file itself.
COUNTED = """
import pickle
from dataclasses import dataclass
from itertools import count
from shop import events
from shop.events import Purchase
from sunshower import Bolt, JsonLines, Records, Topology

@dataclass
class Seen:
    record: Purchase
    times: int = 0

def numbers():
    for n in count():
        yield Purchase(n, events.Color.RED)

class Count(Bolt[Purchase, tuple[int, str, bool, int]]):
    def prepare(self, context) -> None:
        if events.VERSION == "bad":
            raise ValueError("this version does not open")
        self.seen = None

    def process(self, record: Purchase) -> list[tuple[int, str, bool, int]]:
        import counted
        import shop.events as imported
        from shop.plugins import csv
        self.seen = self.seen or Seen(record)
        self.seen.times += 1
        unpickled = pickle.loads(pickle.dumps(self.seen))
        same = (
            csv.accepts(record) and isinstance(self.seen.record, imported.Purchase)
            and type(unpickled) is counted.Seen is Seen and unpickled.record == self.seen.record
            and imported.registry.REGISTRY["Kind"] is imported.Kind
            and (imported.VERSION, csv.VERSION) == (<version>, <version>)
        )
        return [(record.n, imported.VERSION, same, self.seen.record.n)]

    def snapshot(self):
        return self.seen if <keeps> else None

    def restore(self, state) -> None:
        self.seen = state

    def result(self):
        return self.seen

topology = Topology("counted", workers=2, spout_pending=10)
purchases = topology.spout("purchases", Records(numbers, type=Purchase))
counted = purchases.shuffle().bolt("count", Count, fields=("n", "version", "same", "first"))
counted.shuffle().bolt("out", JsonLines(<out>))
"""


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    ship(())


def submitted(folder: Path, version: str, *, keeps: bool = False) -> Graph:
    files = {**PACKAGE, "counted.py": COUNTED}
    out = str(folder / "out.jsonl")
    write(folder / version, files, version=version, keeps=keeps, out=out)
    loaded = load(str(folder / version / "counted.py"))
    ship(loaded.modules)
    return loaded.topology.graph()


def lines(folder: Path, version: str) -> list[dict[str, Any]]:
    file = folder / "out.jsonl"
    rows = [json.loads(line) for line in file.open()] if file.exists() else []
    return [line for line in rows if line["version"] == version]


def code_of_count(run: Run) -> str:
    """What the page shows: the source that the worker has got."""
    (part,) = run.code_parts("count")
    assert (part.name, part.place.partition(":")[0]) == ("Count", "counted.py")
    return part.text


def test_each_version_has_one_object_of_each_module(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    run = ray_cluster.submit(submitted(tmp_path, "1"))
    try:
        until(lambda: len(lines(tmp_path, "1")) > 10)
        assert "(imported.VERSION, csv.VERSION) == ('1', '1')" in code_of_count(run)
        with pytest.raises(LifecycleError, match="this version does not open"):
            run.upgrade(submitted(tmp_path, "bad"))
        before = len(lines(tmp_path, "1"))
        until(lambda: len(lines(tmp_path, "1")) > before + 10)
        graph = submitted(tmp_path, "2", keeps=True)
        run.upgrade(graph)
        assert "(imported.VERSION, csv.VERSION) == ('2', '2')" in code_of_count(run)
        until(lambda: len(lines(tmp_path, "2")) > 10)
        run.kill_master()
        (seen,) = run.results("count")
        assert type(seen).__module__ == "counted"
        assert type(seen) is sys.modules["counted"].Seen
        savepoint = run.keep()
        run.kill()
        run = ray_cluster.submit(submitted(tmp_path, "3", keeps=True), resume=savepoint)
        until(lambda: len(lines(tmp_path, "3")) > 10)
    finally:
        run.stop()
    for version in ("1", "2", "3"):
        assert {line["same"] for line in lines(tmp_path, version)} == {True}
    assert len({line["first"] for line in lines(tmp_path, "2") + lines(tmp_path, "3")}) == 1
