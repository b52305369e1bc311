"""Runs the commands and programs of docs/ZOOKEEPER.md on real servers, and checks its errors."""

from __future__ import annotations

import json
import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sunshower.clock import SystemClock
from sunshower.dev.kafka import Kafka
from sunshower.dev.servers import Ports
from sunshower.dev.zookeeper import ZooKeeper
from sunshower.errors import StoreError, TopologyFailed
from sunshower.runtime.inline import run_inline
from sunshower.state.zookeeper_tree import ZooKeeperTree
from tests.docs.pages import commands, page, place_programs
from tests.kafka.stage import running
from tests.kafka.topics import admin
from tests.structure.reading import ROOT

PAGE = page("ZOOKEEPER")
EXAMPLE = "examples/storm_kafka_spout.py"
WITHIN_S = 150.0


@pytest.fixture
def place(
    kafka_zk: Kafka, zookeeper: ZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A folder with the page's programs and the examples, and an empty topic `clicks`."""
    place_programs(PAGE, tmp_path, monkeypatch, also=["examples"])
    monkeypatch.setenv("KAFKA", kafka_zk.bootstrap)
    monkeypatch.setenv("ZOOKEEPER", zookeeper.connect)
    path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    monkeypatch.setenv("PYTHONPATH", path)
    yield tmp_path
    admin(kafka_zk.bootstrap).delete_topics(["clicks"])["clicks"].result(60)


def python(*arguments: str) -> str:
    command = [sys.executable, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def offsets(zookeeper: ZooKeeper) -> list[Any]:
    """(topology.id, offset) of each partition, as Storm's PartitionManager would read them."""
    with closing(ZooKeeperTree(zookeeper.connect)) as tree:
        nodes = [tree.get(f"/kafka-storm/visits/partition_{number}") for number in range(4)]
    entries = [json.loads(node.value) for node in nodes if node]
    return [(entry["topology"]["id"], entry["offset"]) for entry in entries]


def run_until_committed(arguments: list[str], zookeeper: ZooKeeper) -> None:
    """Run `sunshower run …` in its own process; interrupt it when all offsets are stored."""
    command, clock = [sys.executable, "-m", "sunshower", *arguments], SystemClock()
    output = subprocess.STDOUT
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=output, text=True) as process:
        end_s = clock.now() + WITHIN_S
        while [offset for _, offset in offsets(zookeeper)] != [250] * 4:
            assert process.poll() is None, process.communicate()[0]
            assert clock.now() < end_s
            clock.sleep(0.2)
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0, printed
    assert "200 tuples taken in, all of them acked" in printed


@pytest.mark.timeout(600)
def test_a_storm_topology_is_migrated_with_the_commands_of_the_page(
    place: Path, zookeeper: ZooKeeper
) -> None:
    """The servers of the test replace those of `make` and `dev`, which have their own tests."""
    wanted = [words for words in commands(PAGE) if EXAMPLE in words]
    assert [words[0] for words in wanted] == ["python", "sunshower", "python"]
    fill, run, show = wanted
    python(*fill[1:])
    assert offsets(zookeeper) == [("visits-1-1400000000", 200)] * 4
    run_until_committed(run[1:], zookeeper)
    read = [json.loads(line) for line in Path("visits.jsonl").read_text().splitlines()]
    assert {(visit["partition"], visit["offset"]) for visit in read} == {
        (partition, offset) for partition in range(4) for offset in range(200, 250)
    }
    ids = {id for id, _ in offsets(zookeeper)}
    assert len(ids) == 1
    assert ids != {"visits-1-1400000000"}
    shown = dict(line.split(" ", 1) for line in python(*show[1:]).splitlines())
    first = json.loads(shown["/kafka-storm/visits/partition_0"])
    (on_page,) = re.findall(r"^```text\n.*?\n(\{.*?\})\n```$", PAGE, re.MULTILINE | re.DOTALL)
    assert first.keys() == json.loads(on_page).keys()
    assert f"{first['broker']['host']}:{first['broker']['port']}" == os.environ["KAFKA"]


@contextmanager
def program(name: str) -> Iterator[dict[str, Any]]:
    """The names of a program of the page, over a topic with 1,000 messages."""
    python(EXAMPLE, "--fill", "1000")
    yield runpy.run_path(name)


@pytest.mark.timeout(300)
def test_a_group_has_the_nodes_of_the_page(place: Path, zookeeper: ZooKeeper) -> None:
    home = "/consumers/shared"
    with (
        program("shared_visits.py") as names,
        closing(ZooKeeperTree(zookeeper.connect)) as tree,
        running(names["topology"]) as run,
    ):
        pages = place / "pages.jsonl"
        run.until(lambda: pages.exists() and pages.read_text().count("\n") == 1000)
        run.until(lambda: values(tree, f"{home}/offsets/clicks") == [b"250"] * 4)

        def threads() -> set[str]:
            return {value.decode() for value in values(tree, f"{home}/owners/clicks")}

        def has_both_members() -> bool:
            members = tree.children(f"{home}/ids")
            return len(members) == 2 and threads() == {f"{member}-0" for member in members}

        run.until(has_both_members)
        members = tree.children(f"{home}/ids")
        assert all(re.fullmatch(r"shared_.+-\d+-[0-9a-f]{8}", member) for member in members)


def values(tree: ZooKeeperTree, path: str) -> list[bytes]:
    nodes = [tree.get(f"{path}/{name}") for name in tree.children(path)]
    return [node.value for node in nodes if node]


@pytest.mark.timeout(300)
def test_a_batch_program_counts_once_and_refuses_another_password(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        with program("visits_by_page.py") as names:
            run_inline(names["topology"].graph())
    assert python("visits_by_page.py") == "2000 visits\n"
    monkeypatch.setenv("VISITS_PASSWORD", "guess")
    with pytest.raises((StoreError, TopologyFailed)) as refused:
        run_inline(runpy.run_path("visits_by_page.py")["topology"].graph())
    assert "it needs another name and password (`digest`)" in str(refused.value)


def test_the_page_has_the_errors_of_wrong_use(
    place: Path, zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    python(EXAMPLE, "--fill", "4")
    ports = Ports()
    away = f"127.0.0.1:{ports.claim()}"
    errors = [
        (away, "", "no ZooKeeper has answered at"),
        (f"{zookeeper.connect}/empty", "", "no Kafka is registered in this ZooKeeper"),
        (zookeeper.connect, "SSL", "has the listener"),
    ]
    with closing(ZooKeeperTree(zookeeper.connect)) as tree:
        tree.create("/empty")
    for hosts, listener, wanted in errors:
        assert wanted in PAGE
        monkeypatch.setenv("ZOOKEEPER", hosts)
        with running(example(listener)) as run:
            run.until(run.errors)
            assert wanted in run.errors()[0]
    assert "it needs another name and password (`digest`)" in PAGE.replace("\n", " ")
    ports.release()


def example(listener: str) -> Any:
    """The example's topology, with another listener."""
    text = (ROOT / EXAMPLE).read_text(encoding="utf-8")
    changed = text.replace("Brokers(ZOOKEEPER)", f"Brokers(ZOOKEEPER, listener={listener!r})")
    file = Path("changed.py")
    file.write_text(changed if listener else text, encoding="utf-8")
    return runpy.run_path(str(file))["topology"]
