"""The choice of a window of time on the page in a real Chromium, and the numbers shown."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from io import StringIO
from math import nan
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from rich.console import Console

from sunshower.cli.formatting import duration
from sunshower.cli.statistics import activities, load_table, status_fields
from sunshower.cli.status import topology_frame
from sunshower.cli.ui.application import served_page
from sunshower.runtime.control.overview import Overview
from sunshower.runtime.events.metrics import ALL
from tests.cli.statistics.test_numbers_agree import exposed
from tests.web.conftest import TOKEN, Open, violations
from tests.web.prepared import Prepared, PreparedSource, batches_of_words, late, shop, skewed
from tests.web.test_page_in_a_browser import SHOP, SIZES, node, text_of, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser
TOTAL = ".totals dd >> nth={}"
FAILED = 2
Metrics = dict[tuple[str, tuple[str, ...]], float]


def test_a_window_changes_the_counters_rates_and_edges(url: str, open_page: Open) -> None:
    page = open_page(url, SHOP)
    wait_for(page, ".windows", "rates of the last seconds, counters since the start")
    since_the_start = int(page.locator(TOTAL.format(FAILED)).inner_text().replace(",", ""))
    failures = {}
    for button, message in (("1 min", "of the last 1 min"), ("10 min", "of the last 10 min"),
                         ("1 h", "of the last 1 h"), ("all", "since the start, 2 h")):  # fmt: skip
        page.get_by_role("button", name=button, exact=True).click()
        wait_for(page, ".windows", message)
        pressed = page.locator(".windows [aria-pressed=true]").all_inner_texts()
        assert pressed == [button]
        failures[button] = int(page.locator(TOTAL.format(FAILED)).inner_text().replace(",", ""))
        assert len(page.locator(".edge text").all_inner_texts()) == 7
    # 14 records a second fail; the prepared counters deviate by up to 2 s
    assert failures["1 min"] == pytest.approx(14 * 60, abs=14 * 5)
    assert failures["10 min"] == pytest.approx(14 * 600, abs=14 * 5)
    assert failures["1 h"] == pytest.approx(14 * 3600, abs=14 * 5)
    assert failures["all"] >= since_the_start
    assert "capacity 93 %" in str(node(page, "recommend").get_attribute("aria-label"))
    page.get_by_role("button", name="now", exact=True).click()
    wait_for(page, ".windows", "rates of the last seconds")
    node(page, "price").click()
    page.locator("[aria-label='Windows of time']").wait_for()
    assert "counters of" not in text_of(page, ".panel")


def test_a_window_stays_chosen_in_a_component_which_lists_all_windows(
    url: str, open_page: Open
) -> None:
    page = open_page(url, SHOP)
    page.get_by_role("button", name="10 min", exact=True).focus()
    page.keyboard.press("Enter")
    wait_for(page, ".windows", "of the last 10 min")
    node(page, "price").click()
    wait_for(page, ".panel", "rates, latencies and counters of 10 min")
    page.locator("[aria-label='Windows of time'] tbody tr").first.wait_for()
    rows = page.locator("[aria-label='Windows of time'] tbody tr").all_inner_texts()
    assert [row.split("\t")[0].split("\n")[0].strip() for row in rows] == [
        "1 min", "10 min", "1 h", "all",
    ]  # fmt: skip
    failed = page.locator(".panel .facts .bad dd").inner_text()
    assert failed in rows[1]


def test_only_the_chosen_window_is_sent_each_second(url: str, open_page: Open) -> None:
    page = open_page(url, SHOP)
    page.get_by_role("button", name="1 h", exact=True).click()
    with page.expect_response("**/api/topology?*window=1h") as answer:
        pass
    price = answer.value.json()["components"]["price"]
    assert price["window"]["for_s"] == 3600
    assert "windows" not in price


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_windows_fit_and_are_accessible(url: str, open_page: Open, width: int, scheme: str) -> None:
    page = open_page(url, f"{SHOP}/c/price", width, scheme)
    page.get_by_role("button", name="10 min", exact=True).click()
    wait_for(page, ".windows", "of the last 10 min")
    page.locator("[aria-label='Windows of time']").wait_for()
    assert "price" in text_of(page, ".panel h2")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert violations(page) == []
    assert page.locator("table:not(:has(caption))").count() == 0


# ---- page, terminal, JSON and metrics -----------------------------------------------------------


def number(text: str) -> float:
    """The number of a cell: `5.2k`, `31 %`, `2,880`, `27 % max 99 %`; NaN: it has none."""
    digits = re.match(r"\s*(?:< )?([\d,.]+)\s*([kM%]?)", text)
    if digits is None:
        return nan
    return float(digits[1].replace(",", "")) * {"k": 1e3, "M": 1e6, "%": 0.01, "": 1}[digits[2]]


def cells_of_page(page: Page) -> dict[str, dict[str, str]]:
    """Component → column → text, as the table of components shows them."""
    table = page.get_by_role("region", name="Table: Components").locator("table")
    titles = table.locator("thead th, thead td").all_inner_texts()
    rows = [row.locator("th, td").all_inner_texts() for row in table.locator("tbody tr").all()]
    return {row[0]: dict(zip(titles, row, strict=True)) for row in rows}


def cells_of_terminal(overview: Overview, up_s: float) -> dict[str, dict[str, str]]:
    snapshot, graph = overview.snapshot, overview.plan.graph
    table = load_table(graph, snapshot, activities(snapshot, [*graph.components], ALL, up_s), "")
    columns = [[str(cell) for cell in column.cells] for column in table.columns]
    titles = [str(column.header) for column in table.columns]
    rows = [dict(zip(titles, row, strict=True)) for row in zip(*columns, strict=True)]
    return {row[titles[0]].replace("\n", "").rpartition("×")[0].strip(): row for row in rows}


class Shown(NamedTuple):
    """What the page and the terminal show of one snapshot, of the whole time."""

    cells: dict[str, dict[str, str]]
    tiles: dict[str, str]
    page: str
    terminal: str
    terminal_cells: dict[str, dict[str, str]]


def shown_of(name: str, overview: Overview, up_s: float, open_page: Open, url: str) -> Shown:
    page = open_page(url, f"#/t/{name}")
    page.get_by_role("button", name="all", exact=True).click()
    wait_for(page, ".windows", "averages and counters since the start")
    tiles = [tile.split("\n")[:2] for tile in page.locator(".totals > div").all_inner_texts()]
    printed = StringIO()
    Console(file=printed, width=1_000).print(topology_frame(overview, up_s, ALL))
    return Shown(
        cells_of_page(page),
        {tile[0]: tile[1] for tile in tiles},
        text_of(page, "main"),
        printed.getvalue(),
        cells_of_terminal(overview, up_s),
    )


@pytest.mark.parametrize("prepared", [shop, late, skewed, batches_of_words])
def test_page_terminal_json_and_metrics_agree_for_one_snapshot(
    prepared: Callable[[], Prepared], open_page: Open
) -> None:
    source = PreparedSource(prepared())
    ((name, topology),) = source.prepared.items()
    up_s = source.now_s
    overview = topology.overview(up_s)
    source.freeze({name: overview})
    facts = json.loads(json.dumps(status_fields(overview, up_s), allow_nan=False))
    metrics = exposed(overview)
    with served_page(source, TOKEN, port=0) as url:
        shown = shown_of(name, overview, up_s, open_page, url)
    graph = overview.plan.graph
    assert shown.cells.keys() == shown.terminal_cells.keys()
    for id in shown.cells:
        check_component(id, graph.components[id].level.is_spout, shown, facts, metrics)

    spouts = [facts["components"][spout.id] for spout in graph.spouts]
    for title, field in (("failed", "failed"), ("dead letters", "dead"), ("pending", "pending")):
        assert number(shown.tiles[title]) == sum(spout[field] for spout in spouts)
    restarts = metrics["worker_restarts_total", (name,)]
    assert number(shown.tiles["restarts"]) == facts["restarts"] == restarts
    slowest = max((spout["p99_s"] for spout in spouts if spout["p99_s"] is not None), default=None)
    assert shown.tiles["latency p99"] == ("–" if slowest is None else duration(slowest))
    check_progress(shown, facts, metrics)


def check_component(
    id: str, is_spout: bool, shown: Shown, facts: dict[str, Any], metrics: Metrics
) -> None:
    name, row, line = facts["topology"], shown.cells[id], shown.terminal_cells[id]
    fields, progress = facts["components"][id], facts["progress"]
    whole = fields["windows"][ALL]
    for field in ("emitted", "acked", "failed"):
        counted = metrics[f"tuples_{field}_total", (id, name)]
        assert number(row[field]) == fields[field] == whole[field] == counted
    assert number(line["failed"]) == fields["failed"]
    done = whole["acked" if is_spout else "executed"] / whole["for_s"]
    done = progress["rows_s"].get(id, done)
    assert number(line["per s"]) == pytest.approx(done, abs=0.51)
    assert number(row["a second"]) == pytest.approx(done, rel=0.006, abs=0.5)
    assert number(row["capacity"]) == pytest.approx(whole["capacity"], abs=0.0051)
    assert number(line["capacity"]) == pytest.approx(whole["capacity"], abs=0.0051)
    assert fields["busy_s"] == metrics["busy_seconds_total", (id, name)]
    busy = progress["busy"][id]
    assert busy["top"] == metrics["busiest_task_capacity", (id, name)]
    assert ("max" in row["capacity"]) == busy["is_uneven"]
    sentence = f"{id}: its busiest task runs {busy['top']:.0%}"
    assert (sentence in shown.terminal) == busy["is_uneven"]
    if not is_spout:
        queued = metrics["queued_tuples", (id, name)]
        assert number(line["queued"]) == queued
        assert row["queued"] == "" or number(row["queued"]) == queued
    assert row["p99"] == line["p99"]


def check_progress(shown: Shown, facts: dict[str, Any], metrics: Metrics) -> None:
    """Whether it keeps up, what limits it, and what fails."""
    name, limit = facts["topology"], facts["progress"]["limit"]
    sources = facts["progress"]["sources"]
    assert limit["text"] in shown.page
    assert limit["text"] in shown.terminal
    assert metrics["limited", (limit["kind"], name)] == 1.0
    if sources:
        assert number(shown.tiles["records behind"]) == sum(each["lag"] for each in sources)
        assert any(each["trend"] in shown.page for each in sources)
    for each in sources:
        assert f"{each['lag']:,.0f} records behind, {each['trend']}" in shown.terminal
        assert each["growth"] == metrics["lag_growth", (each["component"], name)]
        assert each["lag"] == metrics["lag_records", (each["component"], name)]
    for group in facts["failures"]:
        assert (group["message"] or group["cause"]) in shown.page
        assert f"{group['count']:,}" in shown.page
        assert f"{group['count']:,} failed, {group['rate']:.1f}/s" in shown.terminal
