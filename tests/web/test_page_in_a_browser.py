"""The page in a real Chromium, with prepared topologies: content, actions, keyboard, sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from sunshower.cli.ui.application import served_page
from tests.web.conftest import TOKEN, Open, violations
from tests.web.prepared import HOSTILE, HostileSource, PreparedSource, huge

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser
SHOP = "#/t/web-shop"
SIZES = [
    (360, "light"),
    (1280, "dark"),
    pytest.param(360, "dark", marks=pytest.mark.long),
    pytest.param(1280, "light", marks=pytest.mark.long),
    *(pytest.param(1920, scheme, marks=pytest.mark.long) for scheme in ("light", "dark")),
]
FOCUSED = "document.activeElement.ariaLabel ?? document.activeElement.innerText"


def text_of(page: Page, selector: str) -> str:
    return page.locator(selector).first.inner_text()


def wait_for(page: Page, selector: str, text: str) -> None:
    page.locator(selector, has_text=text).first.wait_for()


def node(page: Page, id: str) -> Any:
    return page.locator(f'.node[aria-label^="{id},"]')


# ---- content ------------------------------------------------------------------------------------


def test_the_list_has_links_to_topologies(url: str, open_page: Open) -> None:
    page = open_page(url)
    wait_for(page, ".rows tbody tr", "web-shop")
    row = page.locator("tbody tr", has_text="web-shop").inner_text()
    assert "active" in row
    assert "waiting" in row
    page.get_by_role("link", name="web-shop").click()
    wait_for(page, "h1", "web-shop")
    assert page.title() == "web-shop · Sunshower"


def test_the_page_loads_few_files(url: str, open_page: Open) -> None:
    """On a large topology they wait for each other, and for the data."""
    page = open_page(url, SHOP)
    node(page, "price").wait_for()
    loaded = page.evaluate("performance.getEntriesByType('resource').map((each) => each.name)")
    files = {name for name in loaded if "/static/" in name and not name.endswith(".svg")}
    assert len(files) <= 6
    assert sum("/api/topology?" in name for name in loaded) >= 1


def test_without_a_topology_the_page_says_how_to_start_one(open_page: Open) -> None:
    with served_page(PreparedSource(), TOKEN, port=0) as url:
        page = open_page(url)
        wait_for(page, "h1", "No topology is running")
        assert "sunshower submit" in text_of(page, "main")


def test_bottleneck_failure_and_outage_are_described_at_once(url: str, open_page: Open) -> None:
    page = open_page(url, SHOP)
    wait_for(page, ".problems li", "price fails")
    problems = page.locator(".problems li").all_inner_texts()
    assert any("outage" in text and "store (2 tasks)" in text and "2 min 10 s" in text
               and "OperationalError: connection refused" in text for text in problems)  # fmt: skip
    assert any(
        "price fails" in text and "exception: KeyError: 'A-1047'" in text for text in problems
    )
    assert any("recommend is the bottleneck" in text for text in problems)
    assert "bottleneck" in str(node(page, "recommend").get_attribute("aria-label"))
    assert "busy" in str(node(page, "recommend").get_attribute("class"))
    assert "failing" in str(node(page, "price").get_attribute("aria-label"))
    assert "waits 2 min 10 s" in str(node(page, "store").get_attribute("aria-label"))
    assert page.locator(".mark").count() == 3  # and nothing else is marked


def test_edges_have_the_rates_that_follow_from_the_counters(url: str, open_page: Open) -> None:
    page = open_page(url, SHOP)
    page.locator(".edge text").nth(6).wait_for()
    assert page.locator(".edge").count() == 7
    rates = page.locator(".edge text").all_inner_texts()
    assert len(rates) == 7
    assert all(rate != "0" for rate in rates)


def test_numbers_and_charts_are_updated(url: str, open_page: Open) -> None:
    page = open_page(url, SHOP)
    before = page.locator(".totals dd").nth(1).text_content()
    page.wait_for_function(
        "(before) => document.querySelectorAll('.totals dd')[1].textContent !== before", arg=before
    )
    page.locator(".chart canvas").nth(1).wait_for()
    assert "Complete trees: acked" in str(
        page.locator(".chart .plot").first.get_attribute("aria-label")
    )


def test_a_component_shows_why_it_fails_and_its_tasks(url: str, open_page: Open) -> None:
    page = open_page(url, SHOP)
    node(page, "price").click()
    wait_for(page, ".panel h2", "price")
    wait_for(page, "[aria-label=Tasks] tbody tr", "0")
    assert page.locator("[aria-label=Tasks] tbody tr").count() == 6
    inputs = page.get_by_role("region", name="Input streams").locator("tbody tr")
    outputs = page.get_by_role("region", name="Output streams").locator("tbody tr")
    assert inputs.first.inner_text().startswith("parse")
    assert outputs.first.inner_text().startswith("default")
    page.locator(".panel details.error summary").first.click()
    assert "PRICES[order.article]" in text_of(page, ".panel pre")
    page.get_by_role("link", name="Close").click()
    page.locator(".panel").wait_for(state="detached")


def test_an_open_traceback_stays_open_while_its_numbers_change(url: str, open_page: Open) -> None:
    page = open_page(url, SHOP)
    page.locator(".problems summary").first.click()
    for _ in range(2):
        title = text_of(page, ".totals")
        page.wait_for_function("(before) => document.querySelector('.totals').innerText !== before",
                               arg=title)  # fmt: skip
        assert page.locator(".problems details").first.get_attribute("open") is not None


def test_a_component_with_a_state_shows_how_many_entries_it_has(url: str, open_page: Open) -> None:
    page = open_page(url, f"{SHOP}/c/sessions")
    wait_for(page, ".panel .facts div", "48,200")
    assert "entries of its state" in text_of(page, ".panel")
    wait_for(page, "[aria-label=Tasks] thead", "entries")
    assert "12,050" in text_of(page, "[aria-label=Tasks] tbody tr")
    page.goto(f"{url}{SHOP}/c/parse")
    wait_for(page, "[aria-label=Tasks] tbody tr", "3")
    assert "entries" not in text_of(page, ".panel")


def test_a_component_shows_where_its_time_goes(url: str, open_page: Open) -> None:
    page = open_page(url, f"{SHOP}/c/recommend")
    wait_for(page, ".panel h2", "recommend")
    parts = page.locator(".panel h3", has_text="Where its time goes").locator("+ dl > div")
    shares_by_part = dict(part.split("\n")[:2] for part in parts.all_inner_texts())
    assert list(shares_by_part) == [
        "runs its code",
        "waits for credit",
        "idle, or waits for its turn",
    ]
    shares = [float(share.strip().rstrip("%")) for share in shares_by_part.values()]
    assert shares[0] > 50
    assert 99 <= sum(shares) <= 101


def test_the_log_is_shown_by_component_and_text(url: str, open_page: Open) -> None:
    page = open_page(url, SHOP)
    page.get_by_role("button", name="Show the log").click()
    lines = page.locator(".lines li")
    lines.nth(159).wait_for()
    assert "price[2]" in lines.nth(1).inner_text()
    page.locator(".logs select").select_option("store")
    page.wait_for_function("() => document.querySelectorAll('.lines li').length === 40")
    page.locator(".logs input").fill("A-1047 8")
    page.wait_for_function("() => document.querySelectorAll('.lines li').length === 2")
    assert "error" not in lines.first.inner_text()
    assert violations(page) == []


def test_what_is_inside_a_component(url: str, open_page: Open) -> None:
    page = open_page(url, f"{SHOP}/c/sessions")
    page.locator("summary", has_text="Its code").click()
    wait_for(page, ".part pre", "def sessions(order):")
    page.locator("summary", has_text="look up a key").click()
    wait_for(page, ".part dl", "user-29")
    page.get_by_label("Key", exact=True).fill("user-7")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelectorAll('.part dl > div').length === 1")
    assert '"visits": 7' in text_of(page, ".part dl")
    page.get_by_label("Key", exact=True).fill("nobody")
    page.keyboard.press("Enter")
    wait_for(page, ".part .notice", "There is no value for nobody")
    page.locator("summary", has_text="function by function").click()
    page.locator("#token-profile").fill(TOKEN)
    page.get_by_role("button", name="Use token").last.click()
    page.get_by_role("button", name="Record 5 s").click()
    wait_for(page, ".part .notice", "worker 1 is missing: it was restarted")
    page.wait_for_function("() => document.querySelector('.flames')?.naturalWidth > 0")
    assert violations(page) == []
    with page.expect_popup() as opened:
        page.get_by_text("Open the flame graph in a tab").click()
    graph = opened.value
    box = graph.locator(".box", has_text="step_3").first
    before = box.locator("rect").get_attribute("width")
    box.click()  # its script runs, although the page allows no scripts in a document
    assert box.locator("rect").get_attribute("width") != before


def test_a_spout_shows_latencies_and_the_lag_of_each_partition(url: str, open_page: Open) -> None:
    page = open_page(url, f"{SHOP}/c/orders")
    wait_for(page, ".panel tbody tr", "orders[3]")
    panel = text_of(page, ".panel")
    for word in ("p50", "p90", "p99", "max", "lag", "committed", "timeout"):
        assert word in panel


def test_an_outage_is_shown_with_its_error_and_duration(url: str, open_page: Open) -> None:
    page = open_page(url, f"{SHOP}/c/store")
    wait_for(page, ".panel .notice", "has waited for a dependency for 2 min 10 s")
    wait_for(page, ".panel", "OperationalError: connection refused")


def test_open_batches_have_their_phases(url: str, open_page: Open) -> None:
    page = open_page(url, "#/t/batches")
    wait_for(page, "h2", "Batches of words")
    wait_for(page, "tbody tr", "committing")


def test_an_unknown_component_has_a_notice(url: str, open_page: Open) -> None:
    page = open_page(url, f"{SHOP}/c/none")
    wait_for(page, ".notice", "There is no component")


def test_the_page_shows_that_the_server_does_not_answer(open_page: Open) -> None:
    with served_page(PreparedSource(huge(10, 1)), TOKEN, port=0) as url:
        page = open_page(url)
        wait_for(page, "h1", "huge")  # the only topology is shown at once
    page.locator(".live.off").wait_for()
    wait_for(page, ".notice", "The server does not answer")


# ---- hostile texts ------------------------------------------------------------------------------


def test_hostile_texts_are_shown_and_never_run(open_page: Open) -> None:
    with served_page(HostileSource(), TOKEN, port=0) as url:
        name, component = quote(HOSTILE, safe=""), quote(f"bolt {HOSTILE}", safe="")
        page = open_page(url, f"#/t/{name}/c/{component}")
        wait_for(page, ".panel h2", "bolt <script>")
        wait_for(page, ".panel tbody tr", "quarantined")
        for summary in page.locator("details > summary").all():
            summary.evaluate("(element) => { element.parentElement.open = true; }")
        page.get_by_role("button", name="Show the log").click()
        wait_for(page, ".lines li", "<script>")
        wait_for(page, ".part pre", "<script>")
        page.goto(f"{url}#/t/{name}/c/{quote(f'spout {HOSTILE}', safe='')}")
        wait_for(page, ".panel tbody th", "<script>")
        assert page.locator("h1").inner_text() == HOSTILE
        assert page.locator("main script, main img").count() == 0
        assert page.evaluate("window.broken") is None


# ---- actions ------------------------------------------------------------------------------------


def test_without_the_token_the_page_asks_for_it_and_does_nothing(
    url: str, source: PreparedSource, open_page: Open
) -> None:
    page = open_page(url, SHOP)
    page.locator("summary", has_text="Actions").click()
    assert "read-only" in text_of(page, ".menu")
    page.get_by_label("Token").fill("guessed")
    page.get_by_role("button", name="Use token").click()
    page.get_by_role("button", name="Deactivate").click()
    wait_for(page, ".menu .notice", "needs the token")
    assert page.get_by_label("Token").is_visible()
    assert source.acted == []


def test_with_the_token_the_page_acts_and_shows_the_new_state(
    url: str, source: PreparedSource, open_page: Open
) -> None:
    page = open_page(url, SHOP)
    page.locator("summary", has_text="Actions").click()
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Use token").click()
    page.get_by_role("spinbutton").fill("6")
    page.get_by_role("button", name="Rebalance …").click()
    wait_for(
        page, ".what-happens", "Its 31 tasks are distributed over 6 workers; now they are on 4."
    )
    wait_for(page, ".what-happens", "for at most 30 s. Those that are open then are emitted again.")
    page.get_by_role("button", name="Rebalance").click()
    wait_for(page, ".menu .notice", "rebalance")
    page.get_by_role("button", name="Deactivate").click()
    wait_for(page, ".title .badge", "inactive")
    wait_for(page, "#announcements", "The topology is inactive")
    page.get_by_role("button", name="Kill …").click()
    wait_for(page, ".what-happens", "What its tasks have in memory (sessions) is lost")
    assert len(source.acted) == 2  # a kill needs a confirmation
    page.get_by_role("button", name="Cancel").click()
    assert source.acted == [("web-shop", "rebalance", 6), ("web-shop", "deactivate", None)]


# ---- every size, keyboard and screen readers ----------------------------------------------------


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_the_page_fits_and_is_accessible(
    url: str, open_page: Open, width: int, scheme: str
) -> None:
    page = open_page(url, f"{SHOP}/c/price", width, scheme)
    wait_for(page, ".panel tbody tr", "0")
    for path in (f"{SHOP}/c/price", f"{SHOP}/c/store", SHOP, "#/"):
        page.goto(url + path)
        wait_for(page, "#main", "web-shop")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert violations(page) == []
    dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (dark == "rgb(14, 17, 22)") == (scheme == "dark")


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_what_is_opened_fits_and_is_accessible(
    url: str, open_page: Open, width: int, scheme: str
) -> None:
    """The log, the code, the state and the profile of a component, and the question of a kill."""
    page = open_page(url, f"{SHOP}/c/sessions", width, scheme)
    page.evaluate("(token) => sessionStorage.setItem('sunshower-token', token)", TOKEN)
    for summary in ("Its code", "look up a key", "function by function"):
        page.locator("summary", has_text=summary).click()
    page.get_by_role("button", name="Record 5 s").click()
    page.get_by_role("button", name="Show the log").click()
    page.locator("summary", has_text="Actions").click()
    page.get_by_role("button", name="Kill …").click()
    for selector in (".part pre", ".part dl", ".flames", ".lines li", ".what-happens li"):
        page.locator(selector).first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert violations(page) == []


@pytest.mark.parametrize("width", [360, pytest.param(1280, marks=pytest.mark.long)])
def test_the_page_can_be_used_with_the_keyboard_alone(
    url: str, open_page: Open, width: int
) -> None:
    page = open_page(url, "", width)
    wait_for(page, ".rows tbody tr", "web-shop")

    def press_tab_until(label: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            focused = page.evaluate(FOCUSED)
            if str(focused).startswith(label):
                return
        pytest.fail(f"Tab does not reach {label!r}")

    press_tab_until("web-shop")
    page.keyboard.press("Enter")
    wait_for(page, "h1", "web-shop")
    press_tab_until("price, bolt")
    shown = page.evaluate("getComputedStyle(document.activeElement.querySelector('.focus')).stroke")
    assert shown != "none"  # the focus can be seen
    page.keyboard.press("Enter")
    wait_for(page, ".panel h2", "price")
    page.wait_for_function("() => document.activeElement.id === 'component-title'")
    page.keyboard.press("Escape")
    page.locator(".panel").wait_for(state="detached")


def test_tables_and_regions_have_names(url: str, open_page: Open) -> None:
    page = open_page(url, f"{SHOP}/c/orders")
    wait_for(page, ".panel tbody tr", "orders[3]")
    assert page.locator("table:not(:has(caption))").count() == 0
    assert page.locator("main").count() == page.locator("header").count() == 1
    assert page.locator("th:not([scope])").count() == 0
    unnamed = page.locator("section:not([aria-label]):not([aria-labelledby])")
    assert unnamed.count() == 0
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((element) => element.id)")
    assert len(ids) == len(set(ids))
    rows = page.locator("section", has_text="Components").locator("tbody th").all_inner_texts()
    assert {"orders", "recommend", "store"} <= set(rows)  # the components of the graph, as a table


# ---- size ---------------------------------------------------------------------------------------


def test_tasks_are_on_the_page_only_once_their_component_is_selected(open_page: Open) -> None:
    """The size of the page does not depend on the number of tasks. Its speed is measured by
    screenshots.py."""
    with served_page(PreparedSource(huge()), TOKEN, port=0) as url:
        page = open_page(url, "#/t/huge")
        page.locator(".node").nth(49).wait_for()
        assert page.evaluate("document.querySelectorAll('*').length") < 5_000  # all tasks: 5,000
        page.locator('.node[aria-label^="stage-4-2,"]').focus()
        page.keyboard.press("Enter")
        wait_for(page, ".panel button", "Show all 100 tasks")
