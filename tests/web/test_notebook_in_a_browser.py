"""The graph of a topology in a notebook: Chromium runs the scripts of the cell's output."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sunshower import JsonLines, Records, Topology, count

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


def test_the_graph_is_drawn_instead_of_its_text(browser: Browser, tmp_path: Path) -> None:
    shop = Topology("shop")
    words = shop.spout("words", Records(["tea"], fields=["word"]))
    totals = words.group_by("word").aggregate(count())
    totals.shuffle().bolt("store", JsonLines(tmp_path / "totals.jsonl"))
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.set_content(f"<body>{shop._repr_html_()}</body>")
    names = page.locator("svg text[font-weight='600']").all_text_contents()
    assert sorted(names) == sorted(["words", "combine", "count", "store"])
    assert page.locator("svg path").count() == 2 * 3  # a line and a tip for each edge
    assert page.locator("pre").count() == 0
    assert errors == []
    page.close()
