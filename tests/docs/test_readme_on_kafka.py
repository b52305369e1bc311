"""Runs the two programs of the README that read Kafka, on a real broker and on RayDP."""

from __future__ import annotations

import json
import re
import runpy
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from pyarrow import parquet

from sunshower.clock import SystemClock
from sunshower.dev.kafka import Kafka
from tests.kafka.topics import read_all
from tests.spark.conftest import require_spark
from tests.structure.reading import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
SALES, WITHIN_S = 1_200, 200.0
Sale = tuple[str, datetime, int]  # shop, at, cents


@pytest.fixture
def prefix(kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """In front of the topics' names: the broker has topics of other tests, too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA", kafka.bootstrap)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    prefix = f"readme-{uuid4().hex[:8]}-"
    example = (ROOT / "examples/sales.py").read_text(encoding="utf-8")
    Path("sales.py").write_text(with_topics(example, prefix), encoding="utf-8")
    runpy.run_path("sales.py")["fill"](SALES)
    return prefix


def with_topics(program: str, prefix: str) -> str:
    return re.sub(r'"((?:late-)?sales(?:-per-minute)?)"', rf'"{prefix}\1"', program)


@contextmanager
def running(name: str, prefix: str, kafka: Kafka, *options: str) -> Iterator[None]:
    """Run a program of the README in its own process until the end of the block."""
    (text,) = re.findall(rf"^```python\n(# {name}\n.*?)^```$", README, re.MULTILINE | re.DOTALL)
    text = with_topics(text, prefix).replace("127.0.0.1:9092", kafka.bootstrap)
    Path(name).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "sunshower", "run", *options, name]
    with Path("log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as run:
        try:
            yield
        finally:
            run.send_signal(signal.SIGINT)
            run.wait(WITHIN_S)
    assert run.returncode == 0, Path("log").read_text()


def wait_for(lacking: Callable[[], object]) -> None:
    """Wait until nothing is lacking any more."""
    clock = SystemClock()
    end_s = clock.now() + WITHIN_S
    while lacks := lacking():
        assert clock.now() < end_s, f"{lacks}\n{Path('log').read_text()}"
        clock.sleep(0.5)


def sold(kafka: Kafka, topic: str) -> Iterator[tuple[int, Sale]]:
    """The partition and content of each message."""
    for message in read_all(kafka.bootstrap, topic):
        sale = json.loads(message.value() or b"")
        at = datetime.fromisoformat(sale["at"])
        yield message.partition() or 0, (sale["shop"], at, sale["cents"])


@pytest.mark.servers
def test_the_sales_of_each_minute_that_has_ended_are_counted_once(
    kafka: Kafka, prefix: str
) -> None:
    sales, cents, reached = Counter[tuple[str, str]](), Counter[tuple[str, str]](), {}
    ends: dict[tuple[str, str], datetime] = {}
    for partition, (shop, at, of_sale) in sold(kafka, f"{prefix}sales"):
        end = at.astimezone(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
        key = shop, end.isoformat()
        sales[key] += 1
        cents[key] += of_sale
        ends[key] = end
        reached[partition] = max(at, reached.get(partition, at))
    assert len(reached) == 2, "one partition has no sales, and windows wait for it"
    last = min(reached.values()) - timedelta(seconds=10)  # late=10
    expected = {(*key, sales[key], cents[key]) for key, end in ends.items() if end <= last}

    def counted() -> list[tuple[str, str, int, int]]:
        messages = read_all(kafka.bootstrap, f"{prefix}sales-per-minute")
        rows = [json.loads(message.value() or b"") for message in messages]
        return [(row["shop"], row["window"], row["sales"], row["cents"]) for row in rows]

    with running("minutes.py", prefix, kafka, "--inline"):
        wait_for(lambda: expected - {*counted()})
    assert len(expected) >= 3
    assert sorted(counted()) == sorted(expected)
    assert not read_all(kafka.bootstrap, f"{prefix}late-sales")


@pytest.mark.servers
@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_revenue_of_each_shop_is_in_the_table(kafka: Kafka, prefix: str) -> None:
    require_spark()
    expected = Counter[str]()
    for _, (shop, _, cents) in sold(kafka, f"{prefix}sales"):
        expected[shop] += cents

    def revenue() -> Counter[str]:
        by_shop = Counter[str]()
        for row in parquet.read_table("revenue").to_pylist() if Path("revenue").is_dir() else ():
            by_shop[row["shop"]] += row["sum(cents)"]
        return by_shop

    with running("revenue.py", prefix, kafka):
        wait_for(lambda: expected - revenue())
    assert revenue() == expected
