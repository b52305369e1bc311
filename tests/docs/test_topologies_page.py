"""What the page about topologies shows is right: its program for outages, and the JSON fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import requests

from sunshower.cli.status import _as_json
from sunshower.runtime.metrics import Counts, Snapshot, TaskStats, WorkerStats
from sunshower.runtime.overview import Overview
from sunshower.runtime.plan import make_plan
from sunshower.runtime.supervision import Health, Standing, Wait, WaitKind
from sunshower.runtime.usercode import TaskError
from sunshower.topologies.components import Spout
from sunshower.topologies.topology import Topology

PAGE = (Path(__file__).resolve().parents[2] / "docs/TOPOLOGIES.md").read_text(encoding="utf-8")


class Order(NamedTuple):
    item: str


class Priced(NamedTuple):
    item: str
    price: float


class Orders(Spout[Order]):
    def records(self) -> Iterator[Order]:
        yield Order("umbrella")


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
    found = _as_json(Overview(make_plan(topology.graph()), snapshot, None, 0.0, {}), 1.0)
    rows = PAGE.partition("| `status --json` |")[2].partition("\n\n")[0]
    fields = {line.split("|")[1].strip(): line.split("|")[2] for line in rows.splitlines()[2:]}
    assert set(fields) == {
        "`waiting`",
        "`stuck`",
        "`degraded`",
        "`components.NAME.causes`, `dead`, `expired`",
        "`workers[].crash_reports`",
        "`error`",
    }
    assert {"degraded", "error", "stuck"} <= set(found)
    assert {"causes", "dead", "expired"} <= set(found["components"]["orders"])
    assert "crash_reports" in found["workers"][0]
    named = re.findall(r"`(\w+)`", fields["`waiting`"])
    assert set(found["waiting"][0]) == set(named) - {"unavailable", "doubt"}
