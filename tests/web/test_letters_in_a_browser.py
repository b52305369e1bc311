"""The section of dead letters in a real Chromium: search, one letter, replays, hostile records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from sunshower.cli.dead.letters import read_files
from sunshower.cli.ui.application import served_page
from tests.web.conftest import TOKEN, Open, violations
from tests.web.prepared import HOSTILE, HostileSource, PreparedSource
from tests.web.prepared_letters import hostile, write_letters
from tests.web.test_page_in_a_browser import SHOP, SIZES, text_of, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser
ROWS = ".letters .list tbody tr"


def open_section(page: Page) -> None:
    page.get_by_role("button", name="Show dead letters").click()
    page.locator(ROWS).first.wait_for()


def use_token(page: Page, token: str) -> None:
    page.locator(".replay").get_by_label("Token").fill(token)
    page.locator(".replay").get_by_role("button", name="Use token").click()


def letter_of(folder: Path, message: str) -> str:
    """Return the id of the letter of a message."""
    letters = read_files([str(folder / "dead.*.jsonl")]).letters
    (id_of_letter,) = (stored.id for stored in letters if stored.letter.message_id == message)
    return id_of_letter


def test_letters_are_read_when_the_section_is_opened_the_newest_first(
    url: str, open_page: Open
) -> None:
    page = open_page(url, SHOP)
    asked: list[str] = []
    page.on("request", lambda sent: asked.append(sent.url) if "/api/letter" in sent.url else None)
    wait_for(page, ".letters", "They are read when this is opened")
    with page.expect_response("**/api/topology?*"):
        pass
    assert asked == []
    open_section(page)
    assert page.locator(ROWS).count() == 12
    for text in ("price[0]", "exception", "KeyError: 'A-1000'", "customer: Q. <Acme> Ltd."):
        assert text in (page.locator(ROWS).first.text_content() or "")
    wait_for(page, ".letters", "12 dead letters")
    for _ in range(2):  # two polls of the page
        with page.expect_response("**/api/topology?*"):
            pass
    assert len(asked) == 1
    with page.expect_response("**/api/letters?*"):
        page.get_by_role("button", name="Refresh the dead letters").click()


def test_the_number_of_dead_letters_is_a_link_to_them(url: str, open_page: Open) -> None:
    page = open_page(url, SHOP)
    page.locator(".totals").get_by_role("link", name="dead letters").click()
    page.locator(ROWS).first.wait_for()
    assert page.evaluate("document.activeElement.id") == "letters-title"
    page.locator(ROWS).first.get_by_role("link").click()
    page.get_by_role("button", name="Close the letter").click()
    page.locator(".letter").wait_for(state="detached")
    assert page.locator(ROWS).count() == 12
    page.get_by_role("button", name="Hide dead letters").click()
    wait_for(page, ".letters", "They are read when this is opened")


def test_the_search_finds_letters_by_component_cause_text_and_time(
    url: str, open_page: Open
) -> None:
    page = open_page(url, SHOP)
    open_section(page)

    def search(expected: int) -> None:
        with page.expect_response("**/api/letters?*"):
            page.get_by_role("button", name="Search").click()
        page.wait_for_function(
            "([rows, n]) => document.querySelectorAll(rows).length === n", arg=[ROWS, expected]
        )

    page.get_by_label("failed in").select_option("store")
    search(4)
    assert "4 of 12 dead letters" in text_of(page, ".letters")
    page.get_by_label("cause").select_option("exception")
    search(0)
    page.get_by_role("button", name="Clear").click()
    page.locator(ROWS).nth(11).wait_for()
    page.get_by_label("text").fill("müller")
    search(6)
    page.get_by_label("text").fill("a-1004")
    search(1)
    page.get_by_label("text").fill("")
    newest = text_of(page, ROWS) and page.locator(f"{ROWS} a").first.inner_text()
    page.get_by_label("until").fill(newest.replace(" ", "T"))  # the time of order-4
    search(7)
    page.get_by_label("from").fill("2001-01-01T00:00")
    search(7)


def test_the_keyboard_selects_a_letter_with_its_record_and_traceback(
    url: str, tmp_path: Path, open_page: Open
) -> None:
    page = open_page(url, SHOP)
    page.get_by_role("button", name="Show dead letters").focus()
    page.keyboard.press("Enter")
    page.locator(ROWS).first.wait_for()
    id = letter_of(tmp_path, "order-0")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == f"letter-{id}":
            break
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.activeElement.id === 'letter-title'")
    assert page.url.endswith(f"{SHOP}/d/{id}")
    letter = text_of(page, ".letter")
    for text in ('"order-0"', "price[0]", "KeyError: 'A-1000'", "PRICES[order.article]",
                 '"Q. <Acme> Ltd."', "dead.1.jsonl, line 6"):  # fmt: skip
        assert text in letter
    page.keyboard.press("Escape")
    page.locator(".letter").wait_for(state="detached")
    assert page.url.endswith(SHOP)
    page.wait_for_function(f"() => document.activeElement.id === 'letter-{id}'")


def test_without_the_token_nothing_is_replayed(
    url: str, source: PreparedSource, open_page: Open
) -> None:
    page = open_page(url, SHOP)
    open_section(page)
    page.get_by_role("button", name="Replay all 12").click()
    assert "read-only" in text_of(page, ".replay")
    use_token(page, "guessed")
    wait_for(page, ".replay", "Replay 12 dead letters?")
    page.locator(".replay").get_by_role("button", name="Replay", exact=True).click()
    wait_for(page, ".replay .notice", "needs the token")
    assert page.locator(".replay").get_by_label("Token").is_visible()
    assert source.replayed == []


@pytest.mark.parametrize("width", [360, 1280])
def test_with_the_token_matching_letters_are_replayed_and_marked(
    url: str, source: PreparedSource, open_page: Open, width: int
) -> None:
    page = open_page(url, SHOP, width)
    open_section(page)
    page.get_by_label("failed in").select_option("price")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("button", name="Replay all 8").click()
    use_token(page, TOKEN)
    wait_for(page, ".replay", "Replay 8 dead letters?")
    page.locator(".replay").get_by_role("button", name="Replay", exact=True).click()
    wait_for(page, ".letters [role=status]", "Replayed 8 dead letters: 7 acked, 1 dead again")
    page.locator(f"{ROWS} td", has_text="acked").first.wait_for()
    assert {int(id.removeprefix("order-")) % 3 for id in source.replayed} == {0, 1}
    assert len(source.replayed) == 8
    assert page.locator(f"{ROWS} td", has_text="acked").count() == 7
    assert page.locator(f"{ROWS} td", has_text="dead letter").count() == 1
    page.get_by_role("button", name="Replay all").wait_for(state="detached")


def test_a_letter_is_replayed_and_the_error_is_shown(
    url: str, source: PreparedSource, tmp_path: Path, open_page: Open
) -> None:
    page = open_page(url, f"{SHOP}/d/{letter_of(tmp_path, 'order-5')}")
    page.get_by_role("button", name="Replay this letter").click()
    use_token(page, TOKEN)
    wait_for(page, ".letter .replay", "Replay this dead letter?")
    page.locator(".letter .replay").get_by_role("button", name="Replay", exact=True).click()
    wait_for(page, ".letters .notice", "order-5: not settled within 60 s")
    assert source.replayed == ["order-5"]


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_letters_fit_and_are_accessible(
    url: str, tmp_path: Path, open_page: Open, width: int, scheme: str
) -> None:
    page = open_page(url, f"{SHOP}/d/{letter_of(tmp_path, 'order-0')}", width, scheme)
    page.locator(".letter").wait_for()
    page.locator(ROWS).first.wait_for()
    page.get_by_role("button", name="Replay this letter").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert violations(page) == []
    assert page.locator("section:not([aria-label]):not([aria-labelledby])").count() == 0
    assert page.locator("table:not(:has(caption))").count() == 0
    assert page.locator("th:not([scope])").count() == 0
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((element) => element.id)")
    assert len(ids) == len(set(ids))
    inputs = page.evaluate(
        "[...document.querySelectorAll('input, select')]"
        ".filter((element) => !element.labels.length).length"
    )
    assert inputs == 0
    right = page.evaluate(
        "Math.max(...[...document.querySelectorAll('.letter *, .search *, .list td *')]"
        ".map((element) => element.getBoundingClientRect().right))"
    )
    assert right <= width


def test_an_unknown_letter_has_a_notice(url: str, source: PreparedSource, open_page: Open) -> None:
    page = open_page(url, f"{SHOP}/d/none")
    wait_for(page, ".letters .notice", "there is no dead letter none any more")
    page.goto(f"{url}#/t/quiet")
    wait_for(page, "h1", "quiet")
    assert page.locator(".letters").count() == 0  # no bolt of this topology reads dead letters


def test_hostile_letters_are_shown_and_never_run(tmp_path: Path, open_page: Open) -> None:
    source = HostileSource(write_letters(tmp_path, [hostile(HOSTILE)]))
    (letter,) = read_files([str(tmp_path / "dead.*.jsonl")]).letters
    with served_page(source, TOKEN, port=0) as url:
        page = open_page(url, f"#/t/{quote(HOSTILE, safe='')}/d/{letter.id}")
        wait_for(page, ".letter .record", "<script>window.broken")
        wait_for(page, ROWS, "<script>")
        wait_for(page, ".letters .notice", "<script>")  # the error of a replay
        assert HOSTILE in text_of(page, ".letter pre")
        assert page.locator("main script, main img").count() == 0
        assert page.evaluate("window.broken") is None
