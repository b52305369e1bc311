"""Runs every program of the guides: coming from another system; tuning; sizing."""

from __future__ import annotations

import json
import runpy
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sunshower import testing
from sunshower.dev.kafka import Kafka
from sunshower.runtime.inline import run_inline
from sunshower.topologies.topology import Topology
from tests.connectors.postgres_server import execute
from tests.docs.pages import blocks, page, place_programs, programs
from tests.kafka.topics import new_topic, read_all

GUIDES = ("FROM_STORM", "FROM_FLINK", "FROM_FAUST", "FROM_BYTEWAX", "FROM_QUIX",
          "FROM_KAFKA_STREAMS", "FROM_SPARK", "TUNING", "SIZING")  # fmt: skip
PAGES = "".join(map(page, GUIDES))
PROGRAMS = programs(PAGES)
WORDS = {"rain": 1, "and": 2, "sun": 2, "wind": 1}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with the programs of all guides."""
    return place_programs(PAGES, tmp_path, monkeypatch)


def load(name: str) -> Topology:
    topology = runpy.run_path(name)["topology"]
    assert isinstance(topology, Topology)
    return topology


def rows(pattern: str) -> list[dict[str, Any]]:
    files = sorted(Path.cwd().glob(pattern))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_each_program_of_the_guides_has_a_test_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert PROGRAMS
    assert not [name for name in PROGRAMS if f'"{name}"' not in text]
    assert PAGES.count("```python") == len(PROGRAMS), "a block without its file's name is not run"


@pytest.mark.parametrize("name", ["storm_style.py", "operator_style.py"])
def test_both_programs_for_storm_count_the_same_words(name: str) -> None:
    run_inline(load(name).graph())
    last = Counter[str]()
    for row in rows("totals*.jsonl"):
        last[row["word"]] = max(last[row["word"]], row["times"])
    assert last == WORDS


def test_the_program_for_flink_has_each_order_in_one_minute() -> None:
    run_inline(load("sales_per_minute.py").graph())
    minutes = rows("minutes*.jsonl")
    assert {row["window"] for row in minutes} == {60.0, 120.0, 180.0, 240.0, 300.0}
    assert sum(row["orders"] for row in minutes) == 60
    assert sum(row["cents"] for row in minutes) == sum(100 + n for n in range(60))
    assert rows("late*.jsonl") == []


def test_the_program_for_faust_has_the_totals_and_a_dead_letter() -> None:
    run_inline(load("totals_by_account.py").graph())
    last = {row["account"]: row["cents"] for row in rows("totals*.jsonl")}
    assert last == {"a": sum(range(0, 100, 2)), "b": sum(range(1, 100, 2))}
    (letter,) = rows("dead*.jsonl")
    assert letter["record"] == {"account": "a", "cents": -1}
    assert "negative amount" in letter["traceback"]


def test_both_programs_for_bytewax_count_the_same_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    testing = pytest.importorskip("bytewax.testing")
    for name in ("bytewax_words.py", "words.py"):
        module = runpy.run_path(name)
        if "flow" in module:
            testing.run_main(module["flow"])
        else:
            run_inline(module["topology"].graph())
        lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
        last = Counter[str]()
        for word, total in lines:
            last[word] = max(last[word], int(total))
        assert last == WORDS, name


def test_the_program_for_quix_has_the_sales_of_each_shop_and_minute() -> None:
    run_inline(load("shop_minutes.py").graph())
    expected = Counter(("ab"[n % 2], n * 7 // 60 * 60 + 60) for n in range(1, 100))
    sales = {(row["shop"], row["window"]): row["sales"] for row in rows("shop_minutes*.jsonl")}
    assert sales == expected


def test_the_program_for_kafka_streams_has_the_sales_of_each_city_and_minute() -> None:
    run_inline(load("shops_by_city.py").graph())
    cities = {0: "Berlin", 1: "Paris", 2: "Paris"}
    expected = Counter[tuple[str, int]]()
    for n in range(100):
        expected[cities[n % 3], n * 7 // 60 * 60 + 60] += n
    sales = {(row["city"], row["window"]): row["cents"] for row in rows("city_minutes*.jsonl")}
    assert sales == expected


def test_the_program_for_spark_has_the_sales_of_each_shop_and_minute_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_inline(load("batch_minutes.py").graph())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(set(lines)) == 24
    assert sum(int(line.split("sales=")[1].split(",")[0]) for line in lines) == 99


def test_the_slow_program_of_the_tuning_guide_runs() -> None:
    code = PROGRAMS["slow.py"].replace("100_000", "100").replace("time.sleep(0.001)", "number")
    Path("slow.py").write_text(code, encoding="utf-8")
    done = run_inline(load("slow.py").graph())
    assert done.snapshot.component("numbers").acked == 100


def test_the_sizing_guide_shows_the_output_of_its_program(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runpy.run_path("size.py")
    printed = capsys.readouterr().out.strip()
    assert f"It prints {printed}." in page("SIZING")


@pytest.fixture
def minutes_of_countries(folder: Path) -> dict[tuple[str, str], tuple[int, int]]:
    """The minutes of the orders in files that it writes: a customer is not in the table, and a line
    is not an order."""
    (folder / "orders").mkdir()
    (folder / "customers.csv").write_text("customer,country\nc1,de\nc2,fr\nc3,de\n")
    orders = [(1, "c1", 250, "12:00:00"), (2, "c2", 100, "12:00:20"), (3, "c3", 50, "12:00:59"),
              (4, "c2", "abc", "12:01:00"), (5, "c1", 70, "12:01:10"), (6, "none", 9, "12:03:00"),
              (7, "c2", 1, "12:04:00")]  # fmt: skip
    lines = [f"{n},{customer},{cents},2026-01-01T{at}Z" for n, customer, cents, at in orders]
    for number, part in enumerate((lines[:4], lines[4:]), 1):
        text = "\n".join(["order,customer,cents,at", *part, ""])
        (folder / f"orders/{number}.csv").write_text(text)
    return {
        ("de", "12:01"): (2, 300),
        ("fr", "12:01"): (1, 100),
        ("de", "12:02"): (1, 70),
        ("fr", "12:05"): (1, 1),
    }


def check_bad_order() -> None:
    (letter,) = rows("bad-orders*.jsonl")
    assert "cents" in letter["reason"]


def test_the_program_for_quix_with_files_has_the_totals_of_countries(
    minutes_of_countries: dict[tuple[str, str], tuple[int, int]],
) -> None:
    seen: dict[str, list[Any]] = {"topic": [], "rows": []}
    testing.run(
        load("orders_by_country.py"), {name: outputs.append for name, outputs in seen.items()}
    )
    totals = {(row.country, f"{row.window:%H:%M}"): row[2:] for row in seen["topic"]}
    assert totals == minutes_of_countries
    assert sorted(seen["rows"]) == sorted(seen["topic"])
    check_bad_order()


def test_the_program_for_quix_with_files_writes_to_kafka_and_to_postgresql(
    kafka: Kafka, postgres: str, minutes_of_countries: dict[tuple[str, str], tuple[int, int]]
) -> None:
    topic = new_topic(kafka.bootstrap)
    program = PROGRAMS["orders_by_country.py"].replace("127.0.0.1:9092", kafka.bootstrap)
    program = program.replace("postgresql://127.0.0.1/shop", postgres)
    program = program.replace('}, "minutes", key', f'}}, "{topic}", key')
    Path("orders_by_country.py").write_text(program, encoding="utf-8")
    (table,) = blocks(page("FROM_QUIX"), "sql")
    execute(postgres, "DROP TABLE IF EXISTS minutes", table)
    run_inline(load("orders_by_country.py").graph())
    sent = {}
    for message in read_all(kafka.bootstrap, topic):
        row = json.loads(message.value() or b"")
        end = datetime.fromisoformat(row["window"])
        sent[row["country"], f"{end:%H:%M}"] = row["orders"], row["cents"]
        assert message.key() == row["country"].encode()
    assert sent == minutes_of_countries
    stored = execute(postgres, "SELECT * FROM minutes")
    assert {(row[0], f"{row[1].astimezone(UTC):%H:%M}"): row[2:] for row in stored} == sent
    check_bad_order()
