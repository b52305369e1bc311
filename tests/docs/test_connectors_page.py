"""Runs the programs of docs/CONNECTORS.md, on real servers."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from sunshower import Topology
from sunshower.connectors.objects import ObjectFolder
from sunshower.dev.kafka import Kafka
from sunshower.dev.servers import Ports, answers
from sunshower.testing import run
from tests.connectors.http_server import http_server
from tests.connectors.postgres_server import execute
from tests.connectors.s3_server import s3_server
from tests.kafka import sale_pb2
from tests.kafka.stage import running
from tests.kafka.topics import fill, new_topic

PAGE = (Path(__file__).resolve().parents[2] / "docs/CONNECTORS.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(?:python|sql)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CURL = re.search(r"^```sh\n(curl .*)\n```$", PAGE, re.MULTILINE)
BLOCKS = {text.partition("\n")[0]: text for text in BLOCK.findall(PAGE)}


def program(name: str, **replaced: str) -> dict[str, Any]:
    """The names that a program of the page defines, with other addresses."""
    text = BLOCKS[f"# {name}"]
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    module = {"__name__": name.removesuffix(".py")}
    exec(compile(text, name, "exec", dont_inherit=True), module)
    return module


def topology_of(module: dict[str, Any]) -> Topology:
    topology = module["topology"]
    assert isinstance(topology, Topology)
    return topology


def test_rows_are_written_to_postgresql(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (create,) = [text for text in BLOCKS.values() if text.startswith("CREATE TABLE")]
    execute(postgres, "DROP TABLE IF EXISTS totals")  # of another test on this server
    execute(postgres, create)
    module = program("totals.py", **{"postgresql://localhost/shop": postgres})
    run(topology_of(module))
    rows = execute(postgres, "SELECT word, count FROM totals ORDER BY word")
    assert rows == [("and", 2), ("rain", 1), ("sun", 2), ("wind", 1)]
    execute(postgres, "DROP TABLE totals")


def test_records_are_sent_to_an_http_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with http_server() as server:
        module = program("notify.py", **{"http://localhost:8080/orders": server.url, "…": "secret"})
        run(topology_of(module))
    assert sorted(body["item"] for body in server.bodies) == ["coffee", "tea"]
    assert {request.headers["idempotency-key"] for request in server.requests} == {"1", "2"}
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer secret"}


def test_records_are_taken_from_http_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ports = Ports()
    port = ports.claim()
    module = program("intake.py", **{"8080": str(port)})
    assert CURL
    command = shlex.split(CURL[1].replace("8080", str(port)))
    responses: list[bytes] = []
    client = threading.Thread(target=lambda: responses.append(subprocess.check_output(command)))
    with running(topology_of(module)) as stepped:
        stepped.until(lambda: answers(port))
        client.start()
        stepped.until(lambda: responses)
        client.join()
    ports.release()
    assert responses == [b'{"status":"processed"}']
    assert json.loads(Path("orders.jsonl").read_text()) == {
        "id": 1,
        "item": "tea",
        "day": "2026-02-03",
    }


def test_objects_are_read_from_s3_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    orders = [{"shop": "ab"[number % 2], "cents": number * 1_000} for number in range(20)]
    with s3_server() as server:
        server.put("orders/1.jsonl", "\n".join(map(json.dumps, orders)).encode())
        replacements = {f"s3://bucket/{name}": server.url(name) for name in ("orders", "large")}
        module = program("daily.py", **replacements)
        run(topology_of(module))
        large = ObjectFolder(server.url("large"), "test")
        objects = [large.read(name) for name in large.names()]
    rows = [json.loads(line) for data in objects if data for line in data.splitlines()]
    assert [row["cents"] for row in rows] == [number * 1_000 for number in range(10, 20)]


def test_a_folder_for_each_day_is_marked_when_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(topology_of(program("daily_clicks.py")))
    markers = {marker.parent for marker in Path("clicks").rglob("_SUCCESS")}
    days = {"day=2024-03-29", "day=2024-03-30", "day=2024-03-31"}
    assert {folder.parent.name for folder in markers} == days
    files = Path("clicks").rglob("part-*")
    lines = [line for file in files for line in file.read_text().splitlines()]
    assert len(lines) == 600
    complete = [json.loads(line) for line in Path("complete.jsonl").read_text().splitlines()]
    assert {row["partition"] for row in complete} == {
        str(folder.relative_to("clicks")) for folder in markers
    }


def test_protobuf_messages_are_read_from_kafka(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "sale_pb2", sale_pb2)
    topic = new_topic(kafka.bootstrap)
    fill(kafka.bootstrap, topic, [b"\xff", sale_pb2.Sale(id=7, item="tea").SerializeToString()])
    replacements = {"127.0.0.1:9092": kafka.bootstrap, '["sales"]': f'["{topic}"]'}
    lines, letters = Path("sales.jsonl"), Path("unreadable.jsonl")
    lines.touch()
    letters.touch()
    with running(topology_of(program("sales.py", **replacements))) as stepped:
        stepped.until(lambda: lines.read_text() and letters.read_text())
    assert json.loads(lines.read_text()) == {"id": 7, "item": "tea", "at": None}
    assert "parsing" in json.loads(letters.read_text())["reason"]
