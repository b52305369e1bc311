"""Whether a topology keeps up, its groups of failures and its batches, in a real Chromium."""

from __future__ import annotations

import pytest

from sunshower.cli.ui.application import served_page
from tests.web.conftest import TOKEN, Open, violations
from tests.web.prepared import PreparedSource, skewed
from tests.web.test_page_in_a_browser import SHOP, SIZES, node, text_of, wait_for

pytestmark = pytest.mark.browser


def test_the_first_screen_says_that_a_topology_falls_behind_and_why(
    url: str, open_page: Open
) -> None:
    page = open_page(url, "#/t/late")
    wait_for(page, ".limit", "Why is it not faster? geo-lookup-of-visitors is full")
    wait_for(page, ".totals .bad", "falls behind by 340 records/s")
    wait_for(page, ".title .badge", "falls behind")
    assert "bottleneck" in str(node(page, "geo-lookup-of-visitors").get_attribute("aria-label"))
    bottom = page.locator(".limit").evaluate("(element) => element.getBoundingClientRect().bottom")
    assert bottom < 800, "it is on the first screen"
    assert "…" not in "".join(page.locator(".node .name").all_text_contents()), "names are whole"
    page.get_by_role("link", name="Show geo-lookup-of-visitors").click()
    wait_for(page, ".panel h2", "geo-lookup-of-visitors")


def test_the_charts_begin_with_the_last_hour_and_end_with_the_tile(
    url: str, open_page: Open
) -> None:
    page = open_page(url, "#/t/late")
    page.locator(".chart canvas").nth(2).wait_for()
    assert int(str(page.locator(".chart .plot").first.get_attribute("data-points"))) > 100
    pair = page.evaluate(
        "() => [document.querySelector('.totals dd').textContent,"
        " document.querySelector('.chart .readout b').textContent]"
    )
    assert pair[1] == f"{pair[0]}/s"
    assert "Lag: records behind" in str(
        page.locator(".chart .plot").nth(2).get_attribute("aria-label")
    )


def test_a_part_of_the_last_hour_is_shown_until_a_double_click(url: str, open_page: Open) -> None:
    page = open_page(url, "#/t/late")
    chart = page.locator(".chart .u-over").first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    y = box["y"] + 40

    def seconds_at(share: float) -> int:
        """The time of day at a share of the width, as every chart's readout has it."""
        page.mouse.move(box["x"] + share * box["width"], y)
        texts = page.locator(".chart .readout > .quiet").all_inner_texts()
        assert len(set(texts)) == 1
        hours, minutes, seconds = map(int, texts[0].split(":"))
        return hours * 3_600 + minutes * 60 + seconds

    def minutes_shown() -> float:
        return (seconds_at(0.99) - seconds_at(0.01)) % 86_400 / 60

    assert minutes_shown() == pytest.approx(60, abs=5)
    page.mouse.move(box["x"] + 0.25 * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], y, steps=4)
    page.mouse.up()
    for _ in range(2):
        assert minutes_shown() == pytest.approx(15, abs=5)
        title = text_of(page, ".totals")
        page.wait_for_function("(before) => document.querySelector('.totals').innerText !== before",
                               arg=title)  # fmt: skip
    chart.dblclick()
    assert minutes_shown() == pytest.approx(60, abs=5)


def test_the_bar_of_a_skewed_component_shows_its_busiest_task(open_page: Open) -> None:
    with served_page(PreparedSource(skewed()), TOKEN, port=0) as url:
        page = open_page(url, "#/t/skewed/c/score")
        wait_for(page, ".node", "max 99 %")
        label = str(node(page, "score").get_attribute("aria-label"))
        assert "its busiest task 99 %" in label
        wait_for(page, ".panel .facts div:has-text('busiest task')", "99 %")
        assert "max" not in str(node(page, "orders").text_content())
        fill = float(str(node(page, "score").locator(".fill").get_attribute("width")))
        track = float(str(node(page, "score").locator(".track").get_attribute("width")))
        assert fill == pytest.approx(0.99 * track, rel=0.01)
        hidden = page.locator("[aria-label='Table: Components']").evaluate(
            "(table) => table.scrollWidth - table.clientWidth"
        )
        assert hidden <= 0, "the state is off the screen"
        assert violations(page) == []


def test_an_upgrade_that_was_refused_is_on_the_first_screen(open_page: Open) -> None:
    with served_page(PreparedSource(skewed()), TOKEN, port=0) as url:
        page = open_page(url, "#/t/skewed")
        wait_for(page, ".problems li", "did not happen")
        assert "cannot be upgraded: the class of score" in text_of(page, ".problems")
        box = page.locator(".problems").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < 800


def test_failures_are_grouped_with_a_record(url: str, open_page: Open) -> None:
    page = open_page(url, SHOP)
    row = page.locator("section", has_text="Failures").locator("tbody tr", has_text="KeyError: …")
    row.wait_for()
    text = row.inner_text()
    for part in ("price", "'order': 4711", "exception"):
        assert part in text
    row.locator("summary").click()
    assert "PRICES[order.article]" in row.inner_text()


def test_a_component_that_waits_is_not_called_failing(
    source: PreparedSource, url: str, open_page: Open
) -> None:
    page = open_page(url, SHOP)
    wait_for(page, ".problems li", "store (2 tasks)")
    assert not any("store fails" in text for text in page.locator(".problems li").all_inner_texts())


def test_a_group_of_dead_letters_is_chosen_and_replayed(
    url: str, source: PreparedSource, open_page: Open
) -> None:
    page = open_page(url, f"{SHOP}/d/")
    groups = page.get_by_role("region", name="Groups of dead letters")
    groups.locator("tbody tr").first.wait_for()
    sizes = [int(row.split("\t")[2]) for row in groups.locator("tbody tr").all_inner_texts()]
    assert sizes == sorted(sizes, reverse=True)
    groups.locator("button").last.click()
    page.locator(".letters p", has_text=f"{sizes[-1]} of").wait_for()
    page.get_by_role("button", name="Replay").first.click()
    letters = page.locator(".letters")
    letters.get_by_label("Token").fill(TOKEN)
    letters.get_by_role("button", name="Use token").click()
    letters.get_by_role("button", name="Replay", exact=True).click()
    wait_for(page, ".letters .notice", "Replayed")
    assert len(source.replayed) == sizes[-1]


def test_an_exactly_once_program_has_its_steps_its_rows_and_its_batches(
    url: str, open_page: Open
) -> None:
    page = open_page(url, "#/t/batches")
    wait_for(page, ".totals div", "rows a second")
    wait_for(page, ".totals div", "falls behind by 1,200 records/s")
    names = page.locator(".node .name title").all_text_contents()
    assert names == ["words", "clean", "counts"]
    assert page.locator(".edge").count() == 2
    batches = page.locator("section", has_text="Batches of words").locator("tbody tr")
    assert batches.count() == 10
    assert page.locator(".axis .bar i").count() == 2 + 8 * 2
    page.get_by_label("Internals").check()
    node(page, "$mastercoord-words").wait_for()
    assert page.locator(".edge").count() > 2


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_these_parts_fit_and_are_accessible(
    url: str, open_page: Open, width: int, scheme: str
) -> None:
    page = open_page(url, "#/t/late", width, scheme)
    for path, part in (
        ("late", ".limit"),
        ("batches", ".axis .bar"),
        ("web-shop/d/", ".letters tbody"),
    ):
        page.goto(f"{url}#/t/{path}")
        page.locator(part).first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert violations(page) == []
    if width == 360:
        cells = page.locator(".rows td.number")
        cells.first.wait_for()
        right = cells.first.evaluate("(cell) => cell.getBoundingClientRect().right")
        assert right <= width, "numbers are on the screen"
