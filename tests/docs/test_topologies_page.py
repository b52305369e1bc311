"""Runs the programs and tests of docs/TOPOLOGIES.md and of streams, and checks JSON fields."""

from __future__ import annotations

import json
import re
import runpy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests

from sunshower import run_inline
from sunshower.cli.statistics import status_fields
from sunshower.clock import ManualClock
from sunshower.runtime.control.overview import Overview
from sunshower.runtime.events.health import Health, Standing, TaskError, Wait, WaitKind
from sunshower.runtime.events.metrics import Counts, Snapshot, TaskStats, WorkerStats
from sunshower.runtime.plan import make_plan
from sunshower.simulation.cluster import SimCluster
from sunshower.topologies.components import Bolt, Context, Spout
from sunshower.topologies.sources import Line, Records
from sunshower.topologies.topology import Topology
from tests.docs.pages import STREAMS, TOPOLOGIES, page, place_programs
from tests.docs.pages import programs as programs_of

PAGE = page("TOPOLOGIES", *TOPOLOGIES, *STREAMS)
METRICS = page("METRICS")
CLICKS = [Line(f"user{i % 150} {i}") for i in range(20_000)]
TESTS = [
    (path, name)
    for path, text in programs_of(PAGE).items()
    for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)
]

PROGRAMS = [
    path
    for path, text in programs_of(page(*STREAMS)).items()
    if "topology.spout(" in text and "ThreadPoolExecutor" not in text  # its test is on the page
]


class Order(NamedTuple):
    item: str


class Priced(NamedTuple):
    item: str
    price: float


class Orders(Spout[Order]):
    def records(self) -> Iterator[Order]:
        yield Order("umbrella")


class Late(Bolt[Any, None]):
    """Counts the clicks that come after a later one of the same user."""

    def prepare(self, context: Context) -> None:
        self.last: dict[str, int] = {}
        self.late = 0

    def process(self, click: Any) -> None:
        self.late += click.second < self.last.get(click.user, -1)
        self.last[click.user] = click.second

    def result(self) -> int:
        return self.late


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the page's programs, as the working folder."""
    place_programs(PAGE, tmp_path, monkeypatch)


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize(("path", "name"), TESTS)
def test_the_tests_that_the_page_shows_pass(path: str, name: str) -> None:
    runpy.run_path(path)[name]()


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("path", PROGRAMS)
def test_the_programs_of_the_pages_about_streams_write_records(path: str) -> None:
    run_inline(runpy.run_path(path)["topology"].graph(), clock=ManualClock())
    assert any(file.stat().st_size for file in Path().glob("*.jsonl"))


@pytest.mark.usefixtures("programs")
def test_windows_follow_a_window_and_a_join() -> None:
    program = runpy.run_path("busy_minutes.py")
    run_inline(program["topology"].graph())
    minutes = Counter(int(click.at // 60 + 1) * 60 for click in program["CLICKS"])
    hours = Counter[int]()
    for order in program["ORDERS"]:
        user_clicks = [click for click in program["CLICKS"] if click.user == order.user]
        near = sum(abs(click.at - order.ordered) <= 10 for click in user_clicks)
        hours[int(order.ordered // 3600 + 1) * 3600] += near
    best = [json.loads(line) for line in Path("best.jsonl").read_text().splitlines()]
    assert {row["window"] for row in best} == {3600, 7200}
    for row in best:
        counts = sorted(n for end, n in minutes.items() if 0 <= row["window"] - end < 3600)
        assert [clicks for _, clicks in row["top"]] == counts[:-4:-1]
        assert all(minutes[end] == clicks for end, clicks in row["top"])
    written = [json.loads(line) for line in Path("hours.jsonl").read_text().splitlines()]
    assert {row["window"]: row["count"] for row in written} == +hours


@pytest.mark.usefixtures("programs")
def test_a_parallel_step_changes_the_order() -> None:
    counts = {}
    for steps in (1, 2):
        names = runpy.run_path("sessions.py")
        topology = Topology("sessions")
        lines = topology.spout("lines", Records(CLICKS, type=Line))
        clicks = lines.shuffle().bolt("parse", names["parse"], parallelism=steps)
        clicks.fields("user").bolt("late", Late, parallelism=2)
        with SimCluster(seed=1) as cluster:  # inline, the order would depend on real time
            run = cluster.submit(topology.graph())
            assert run.wait(60.0)
            counts[steps] = sum(run.results("late"))
    assert counts[1] == 0 < counts[2]


@pytest.mark.usefixtures("programs")
def test_the_orders_that_the_page_shows_get_the_prices_of_their_time() -> None:
    run_inline(runpy.run_path("priced_orders.py")["topology"].graph(), clock=ManualClock())
    rows = [json.loads(line) for path in Path().glob("priced*.jsonl") for line in path.open()]
    cents = {(row["item"], row["at"]): row["cents"] for row in rows}
    assert cents == {("a", 99): 10, ("a", 100): 12, ("b", 49): 7, ("b", 60): None}


@pytest.mark.usefixtures("programs")
def test_three_failures_within_a_minute_and_one_without_a_success() -> None:
    program = runpy.run_path("alarms.py")
    run_inline(program["topology"].graph(), clock=ManualClock())
    logins = sorted(program["LOGINS"], key=lambda login: login.at)
    alarms, locked = list[tuple[str, float, float]](), set[tuple[str, float]]()
    for user in "abc":
        failed = list[float]()
        for login in (login for login in logins if login.user == user and not login.ok):
            failed = [at for at in [*failed, login.at] if login.at - at < 60]
            if len(failed) == 3:
                alarms.append((user, failed[0], failed[2]))
                failed = []
            near = [
                other for other in logins if other.user == user and 0 < other.at - login.at < 20
            ]
            if not any(other.ok for other in near):
                locked.add((user, login.at))
    rows = [json.loads(line) for line in Path("alarms.jsonl").read_text().splitlines()]
    assert sorted((row["user"], row["since"], row["at"]) for row in rows) == alarms
    rows = [json.loads(line) for line in Path("locked.jsonl").read_text().splitlines()]
    assert {(row["user"], row["at"]) for row in rows} == locked
    assert alarms
    assert locked


@pytest.mark.usefixtures("programs")
def test_the_endless_topology_can_be_rebalanced_and_killed() -> None:
    with SimCluster(seed=1) as cluster:
        run = cluster.submit(runpy.run_path("endless.py")["topology"].graph())
        assert not run.wait(0.2)
        run.deactivate()
        run.activate()
        run.rebalance(workers=3)
        assert len(run.plan.workers) == 3
        assert run.kill().unsettled == 0


def test_the_types_that_the_page_declares_count_as_an_outage_in_the_topology() -> None:
    (shown,) = re.findall(
        r"^```python\n(import requests\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
    )
    topology = Topology("orders")
    names: dict[str, Any] = {
        "topology": topology,
        "Order": Order,
        "Priced": Priced,
        "Orders": Orders,
        "Iterator": Iterator,
    }
    exec(shown, names)
    names["orders"].shuffle().bolt("price", names["price"])
    assert set(topology.graph().unavailable) == {requests.ConnectionError, requests.Timeout}


def test_the_json_of_status_has_every_field_that_the_page_names() -> None:
    topology = Topology("orders")
    topology.spout("orders", Orders)
    wait = Wait(WaitKind.DOUBT, 1.0, 2, TaskError("orders", 0, 0, "gone"), True)
    task = TaskStats(1, "orders", Counts(), health=Health(Standing.WAITING, 2, (), wait))
    snapshot = Snapshot("orders", {0: WorkerStats(0, 1, (task,))})
    status = status_fields(Overview(make_plan(topology.graph()), snapshot, None, 0.0, {}), 1.0)
    rows = METRICS.partition("## As JSON\n")[2].partition("\n\n- ")[0]
    fields = dict(re.findall(r"^\| (.+?) \| (.*) \|$", rows, re.MULTILINE))
    named = set(re.findall(r"`([\w.[\]]+)`", " ".join([*fields, fields["`components`"]])))
    component, worker = status["components"]["orders"], status["workers"][0]
    assert {name for name in named if "." not in name} <= {*status, *component}
    assert {name.split(".")[1] for name in named if "." in name} <= set(worker)
    counters = {"executed", "transferred", "acked", "failed", "replayed", "pending", "expired"}
    assert {*status, *component} - {*named, *counters} == set()
    named = re.findall(r"`(\w+)`", fields["`waiting`"])
    assert set(status["waiting"][0]) == set(named) - {"unavailable", "doubt", "filling"}


@pytest.mark.usefixtures("programs")
def test_the_last_result_of_each_minute_has_all_its_clicks() -> None:
    program = runpy.run_path("early_minutes.py")
    run_inline(program["topology"].graph())
    clicks = Counter((click.user, click.at // 60 * 60 + 60) for click in program["CLICKS"])
    rows = [json.loads(line) for line in Path("minutes.jsonl").read_text().splitlines()]
    last = {
        (row["user"], row["window"]): row for row in sorted(rows, key=lambda row: row["number"])
    }
    assert {place: row["clicks"] for place, row in last.items()} == clicks
    totals = [json.loads(line) for line in Path("totals.jsonl").read_text().splitlines()]
    assert {row["user"]: row["clicks_sum"] for row in totals} == {"a": 500, "b": 500}
