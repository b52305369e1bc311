"""The experiments of the page in a real Chromium: list, report, sweep, comparison."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from sunshower.cli.ui.application import ExperimentFolders, served_page
from tests.web.conftest import TOKEN, Open, violations
from tests.web.experiments.prepared_experiments import BROKEN, FOREIGN, KEPT, SWEPT, UNFINISHED
from tests.web.prepared import PreparedSource
from tests.web.test_page_in_a_browser import SIZES, text_of, wait_for

pytestmark = pytest.mark.browser


@pytest.fixture
def url(runs: Path) -> Iterator[str]:
    """A page without any topology."""
    with served_page(
        PreparedSource(), TOKEN, port=0, experiments=ExperimentFolders(runs)
    ) as page_url:
        yield page_url


def address(*runs: str) -> str:
    return "/".join(["#/e", *(quote(run, safe="") for run in runs)])


def test_the_list_has_links_to_reports_with_verdicts_evidence_and_charts(
    url: str, open_page: Open
) -> None:
    page = open_page(url)
    page.get_by_role("link", name="Experiments").click()
    wait_for(page, ".runs tbody tr", "kill-a-bolt")
    assert page.locator(".runs tbody tr").count() == 5
    page.locator("tr", has_text="BROKEN").get_by_role("link", name="kill-a-bolt").click()
    wait_for(page, "h1", "kill-a-bolt")
    for text in ("message 17 is missing", "├─ relay[1]", "never", "1.5 s", "Run it again"):
        assert text in text_of(page, "main")
    assert "17" in page.locator(".totals div", has_text="not completed").inner_text()
    for picture in page.locator(".picture img").all():
        picture.scroll_into_view_if_needed()
        loaded = "(image) => image.decode().then(() => image.naturalWidth)"
        assert picture.evaluate(loaded) > 500
    titles = page.locator("main h2").all_inner_texts()
    assert titles[:5] == [
        "Verdicts",
        "Topology",
        "What happened",
        "Recovery",
        "Recovery of each fault",
    ]
    assert "0123456789ab+" in page.locator("section", has_text="commit").last.inner_text()
    assert page.title() == f"{BROKEN} · Sunshower"


def test_two_runs_are_chosen_and_shown_side_by_side(url: str, open_page: Open) -> None:
    page = open_page(url, address())
    wait_for(page, ".runs tbody tr", "kill-a-bolt")
    assert page.get_by_role("button", name="Compare").is_disabled()
    page.get_by_label(f"Compare {KEPT}").check()
    page.get_by_label(f"Compare {BROKEN}").check()
    page.get_by_role("button", name="Compare").click()
    wait_for(page, "h1", "Comparison")
    rows = {row.locator("th").inner_text(): row.locator("td").all_inner_texts()
            for row in page.locator("tbody tr").all()}  # fmt: skip
    assert rows["run"] == [KEPT, BROKEN]
    assert ["HOLDS" in rows["verdict"][0], "BROKEN" in rows["verdict"][1]] == [True, True]
    assert rows["not completed"] == ["0", "17"]
    assert rows["longest recovery"] == ["1.5 s", "never"]
    assert rows["replays"] == ["100", "250", "2.50×"]
    page.get_by_role("link", name="Exchange A and B").click()
    wait_for(page, "tbody tr:first-child td:nth-child(2)", BROKEN)


def test_a_sweep_lists_its_runs_with_links_to_their_reports(url: str, open_page: Open) -> None:
    page = open_page(url, address(SWEPT))
    wait_for(page, "h2", "Runs")
    wait_for(page, ".notice", "Of 2 runs: 2 HOLDS")
    page.get_by_role("link", name="002").click()
    wait_for(page, ".title", f"{SWEPT}/002")


def test_unfinished_foreign_and_unknown_runs_have_a_notice(url: str, open_page: Open) -> None:
    page = open_page(url, address(UNFINISHED))
    wait_for(page, ".notice", "did not finish")
    page.goto(url + address())
    wait_for(page, "tr", "999")
    assert page.get_by_label(f"Compare {FOREIGN}").is_disabled()
    page.goto(url + address("none/at-all"))
    wait_for(page, ".notice", "there is no run 'none/at-all'")


def test_hostile_evidence_is_shown_and_never_run(url: str, open_page: Open) -> None:
    page = open_page(url, address(BROKEN))
    wait_for(page, "pre", '<script src="https://example.org/x.js">')
    assert page.locator("main script").count() == 0


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_every_view_fits_and_is_accessible(
    url: str, open_page: Open, width: int, scheme: str
) -> None:
    page = open_page(url, address(), width, scheme)
    views = {(): "kill-a-bolt", (SWEPT,): "timeout_s", (BROKEN,): "Run it again",
             (KEPT, BROKEN): "B / A"}  # fmt: skip
    for runs, text in views.items():
        page.goto(url + address(*runs))
        wait_for(page, "#main", text)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if width <= 700:  # its cells have the titles of their columns
            assert page.locator(".rows tbody td:not([data-title])").count() == 0
        assert violations(page) == []
        assert page.locator("table:not(:has(caption))").count() == 0
        assert page.locator("section:not([aria-label]):not([aria-labelledby])").count() == 0
