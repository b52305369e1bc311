"""The section of tuple trees in a real Chromium: lists, one tree, keyboard, hostile records."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote

import pytest

from sunshower.cli.ui.application import served_page
from sunshower.runtime.events.trace_recorder import Traces
from tests.web.conftest import TOKEN, Open, violations
from tests.web.prepared import HOSTILE, HostileSource, PreparedSource, shop
from tests.web.prepared_trees import FAILED_ROOT
from tests.web.test_page_in_a_browser import SHOP, SIZES, text_of, wait_for

pytestmark = pytest.mark.browser
TREE = f"{SHOP}/r/{FAILED_ROOT}"


def test_trees_are_loaded_when_the_section_is_opened_and_on_refresh(
    url: str, open_page: Open
) -> None:
    page = open_page(url, SHOP)
    asked: list[str] = []
    page.on("request", lambda sent: asked.append(sent.url) if "/api/trace" in sent.url else None)
    wait_for(page, ".trees", "They are loaded when this is opened")
    with page.expect_response("**/api/topology?*"):
        pass
    assert asked == []
    page.get_by_role("button", name="Show tuple trees").click()
    wait_for(page, ".list tbody tr", "order-7")
    assert page.locator(".list tbody tr").count() == 1  # failed trees are shown first
    reason = "exception in price[2]: KeyError: 'A-1047'"
    for text in ("order-7", "failed", reason, "31 ms", "orders[0]"):
        assert text in text_of(page, ".list tbody tr")
    page.get_by_role("button", name="latest").click()
    wait_for(page, ".more", "50 trees of 62")
    assert page.locator(".list tbody tr").count() == 50
    page.get_by_role("button", name="slowest").click()
    wait_for(page, ".list tbody tr:first-child", "0.50 s")
    for _ in range(2):  # two polls of the page
        with page.expect_response("**/api/topology?*"):
            pass
    assert len(asked) == 1
    with page.expect_response("**/api/traces?*"):
        page.get_by_role("button", name="Refresh").click()
    assert len(asked) == 2


def test_the_keyboard_selects_a_failed_tree_which_shows_its_cause(
    url: str, open_page: Open
) -> None:
    page = open_page(url, SHOP)
    page.get_by_role("button", name="Show tuple trees").focus()
    page.keyboard.press("Enter")
    wait_for(page, ".list tbody tr", "order-7")
    for _ in range(10):
        page.keyboard.press("Tab")
        if "order-7" in page.evaluate("document.activeElement.innerText.slice(0, 20)"):
            break
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.activeElement.id === 'tree-title'")
    assert page.url.endswith(TREE)
    assert "exception in price[2]: KeyError: 'A-1047'" in text_of(page, ".tree .notice")
    page.keyboard.press("Escape")
    page.locator(".tree").wait_for(state="detached")
    assert page.url.endswith(SHOP)
    page.wait_for_function(f"() => document.activeElement.id === 'tree-{FAILED_ROOT}'")


def test_each_edge_is_below_its_input_with_its_times(url: str, open_page: Open) -> None:
    page = open_page(url, TREE)
    wait_for(page, ".tree .hop", "price[2]")
    assert page.locator(".tree > .hops > li").count() == 1
    assert page.locator(".tree > .hops > li > .hops > li").count() == 2
    assert page.locator(".tree > .hops > li > .hops > li > .hops > li").count() == 2
    refused = page.locator(".hop.failed").inner_text()
    for text in ("price[2]", "worker 2", "failed: exception", "sent after 9.1 ms", "waited 12 ms",
                 "processed in 8.9 ms", "Parsed(article='A-1047')"):  # fmt: skip
        assert text in refused
    wait_for(page, ".hop", "audit[0]")
    assert "not processed" in page.locator(".hop", has_text="audit[0]").inner_text()
    page.locator(".tree").get_by_role("link", name="price[2]").click()
    wait_for(page, ".panel h2", "price")


def test_an_open_tree_shows_the_xor_of_its_edges_and_is_loaded_until_it_ends(
    open_page: Open,
) -> None:
    prepared = shop()
    complete = next(tree for tree in prepared.traces.trees if tree.outcome == "complete")
    begun = replace(complete, outcome="open", ended_s=None, reports=complete.reports[:1])
    source = PreparedSource(replace(prepared, traces=Traces((begun,), ())))
    with served_page(source, TOKEN, port=0) as url:
        page = open_page(url, f"{SHOP}/r/{complete.root}")
        wait_for(page, ".tree .xor", "emitted: 00000000000000a1 → 00000000000000a1")
        assert page.locator(".tree .xor li").count() == 1
        (name,) = source.prepared
        source.prepared[name] = replace(prepared, traces=Traces((complete,), ()))
        wait_for(page, ".tree .xor", "acked: 00000000000000a1 → 0000000000000000")
        assert "complete" in text_of(page, "#tree-title")
        with page.expect_response("**/api/topology?*"):
            pass
        page.on("request", lambda sent: asked.append(sent) if "/api/trace?" in sent.url else None)
        asked: list[object] = []
        for _ in range(2):  # two polls of the page
            with page.expect_response("**/api/topology?*"):
                pass
        assert not asked


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_a_tree_fits_and_is_accessible(url: str, open_page: Open, width: int, scheme: str) -> None:
    page = open_page(url, TREE, width, scheme)
    wait_for(page, ".tree .hop", "price[2]")
    wait_for(page, ".tree .xor", "00000000000000a4 → ")
    wait_for(page, ".list tbody tr", "order-7")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert violations(page) == []
    assert page.locator("section:not([aria-label]):not([aria-labelledby])").count() == 0
    assert page.locator("table:not(:has(caption))").count() == 0
    right = page.evaluate(
        "Math.max(...[...document.querySelectorAll('.tree *')]"
        ".map((element) => element.getBoundingClientRect().right))"
    )
    assert right <= width


def test_an_unrecorded_tree_and_an_empty_list_have_a_notice(url: str, open_page: Open) -> None:
    page = open_page(url, f"{SHOP}/r/00000000000000ff")
    wait_for(page, ".trees .notice", "no tree 00000000000000ff of 'web-shop' is recorded")
    page.goto(f"{url}#/t/quiet")
    page.get_by_role("button", name="Show tuple trees").click()
    wait_for(page, ".trees", "No tree is recorded yet.")


def test_the_section_shows_that_the_server_does_not_answer(open_page: Open) -> None:
    with served_page(PreparedSource(shop()), TOKEN, port=0) as url:
        page = open_page(url, SHOP)
        wait_for(page, ".trees", "They are loaded")
    page.get_by_role("button", name="Show tuple trees").click()
    wait_for(page, ".trees .notice", "The server does not answer")


def test_hostile_records_are_shown_and_never_run(open_page: Open) -> None:
    with served_page(HostileSource(), TOKEN, port=0) as url:
        page = open_page(url, f"#/t/{quote(HOSTILE, safe='')}/r/{FAILED_ROOT}")
        wait_for(page, ".tree .record", "<script>window.broken")
        wait_for(page, ".list tbody tr", "<script>")
        wait_for(page, ".trees .notice", "worker 0 does not answer")
        assert HOSTILE in text_of(page, ".tree .notice")
        assert page.locator("main script, main img").count() == 0
        assert page.evaluate("window.broken") is None
