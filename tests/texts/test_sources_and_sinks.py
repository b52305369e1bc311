"""Sends any text, bytes and value through sources and sinks: no record affects another one."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sunshower import Bolt, JsonLines, Retry, Spout, Stdout, TextFiles, Topology, run_inline
from sunshower.clock import ManualClock
from sunshower.kafka.formats import Bytes, Format, Json, MessagePack, Text
from sunshower.runtime.events.event_log import Entry, What, decode, encode
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster
from tests.texts.hostile import odd_values, texts, values

with_fixtures = settings(suppress_health_check=list(HealthCheck))


class Row(NamedTuple):
    number: int
    value: Any


class Keep(Bolt[Row, None]):
    def __init__(self) -> None:
        self.rows: list[Any] = []

    def process(self, record: Row) -> None:
        self.rows.append(tuple(record))

    def result(self) -> list[Any]:
        return self.rows


def topology(values: list[Any], sink: Any, dead: Path | bool) -> Topology:
    class Rows(Spout[Row]):  # a class, because an object would be copied, and some values cannot be
        def records(self) -> Iterator[Row]:
            return itertools.starmap(Row, enumerate(values))

    program = Topology("rows")
    retry = Retry(attempts=1, dead_letters=dead)
    program.spout("rows", Rows, retry=retry).shuffle().bolt("sink", sink)
    return program


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@with_fixtures
@given(st.lists(values, max_size=8))
def test_each_record_is_in_the_file_or_among_the_dead_letters(
    tmp_path_factory: pytest.TempPathFactory, row_values: list[Any]
) -> None:
    folder = tmp_path_factory.mktemp("sinks")
    out, dead = folder / "out.jsonl", folder / "dead.jsonl"
    run_inline(topology(row_values, JsonLines(out), dead).graph(), clock=ManualClock())
    written = [line["number"] for line in lines_of(out)]
    letters = [line["record"]["number"] for line in lines_of(dead)]
    assert sorted(written + letters) == list(range(len(row_values)))
    for line in lines_of(out):
        value = row_values[line["number"]]
        if isinstance(value, str):
            assert line["value"] == value


def test_an_odd_value_affects_no_other_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row_values, raw, dead = odd_values(), io.BytesIO(), tmp_path / "dead.jsonl"
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="utf-8"))
    sink = Stdout(lambda row: f"row {row.number}: {row.value}")
    run_inline(topology(row_values, sink, dead).graph(), clock=ManualClock())
    lines = [line.split() for line in raw.getvalue().split(b"\n") if line.startswith(b"row ")]
    written = [int(words[1][:-1]) for words in lines]
    letters = [line["record"]["number"] for line in lines_of(dead)]
    assert sorted(written + letters) == list(range(len(row_values)))
    assert letters, "the values without a repr"


def test_records_reach_another_process_or_become_dead_letters(tmp_path: Path) -> None:
    row_values = odd_values()
    dead = tmp_path / "dead.jsonl"
    with SimCluster(1) as cluster:
        run = cluster.submit(topology(row_values, Keep, dead).graph(), Layout.ISOLATE)
        assert run.wait(60.0)
        rows = [row for task in run.results("sink") for row in task]
        letters = [line["record"]["number"] for line in lines_of(dead)]
        assert sorted([number for number, _ in rows] + letters) == list(range(len(row_values)))
        for number, value in rows:
            if isinstance(value, str | bytes | bytearray):
                assert value == row_values[number]


@with_fixtures
@given(st.binary(max_size=200))
def test_lines_of_any_bytes_are_read(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("text") / "lines.txt"
    path.write_bytes(data)
    lines_topology = Topology("lines")
    source = TextFiles(str(path), errors="replace")
    lines_topology.spout("lines", source).shuffle().bolt(
        "out", JsonLines(path.with_name("out.jsonl"))
    )
    run_inline(lines_topology.graph(), clock=ManualClock())
    assert len(lines_of(path.with_name("out.jsonl"))) >= data.count(b"\n")


@pytest.mark.parametrize("format", [Json(), Json(Row), Text(), MessagePack(), Bytes()])
@given(st.binary(max_size=100))
def test_formats_decode_any_bytes_or_raise(format: Format, data: bytes) -> None:  # noqa: A002
    decode_value = format.decoder("topic", "value")
    if decode_value is not None:
        with suppress(Exception):  # of any type, but neither SystemExit nor a crash
            decode_value(data)


@given(st.lists(values, max_size=3), texts)
def test_any_detail_of_an_event_is_kept(details: list[Any], name: str) -> None:
    keys = [key for key in details if isinstance(key, str | bytes | int)]
    for detail in (tuple(details), (name, {"fact": details}), (name, dict.fromkeys(keys))):
        (entry,) = decode(io.BytesIO(encode(Entry(1.0, What.NOTED, 1, detail=detail))))
        assert len(entry.detail) == len(detail)
