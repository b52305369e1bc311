"""Batches of tasks at Spark, on the page in a real Chromium."""

from __future__ import annotations

import pytest

from sunshower.cli.ui.application import served_page
from tests.web.conftest import TOKEN, Open, violations
from tests.web.prepared import PreparedSource, quiet
from tests.web.prepared_spark import sales
from tests.web.test_page_in_a_browser import SIZES, text_of, wait_for

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_open_batches_and_sums_are_shown(open_page: Open, width: int, scheme: str) -> None:
    with served_page(PreparedSource(sales()), TOKEN, port=0) as url:
        page = open_page(url, "#/t/sales", width, scheme)
        wait_for(page, "h2", "Batches at Spark")
        rows = page.get_by_role("region", name="Batches at Spark").locator("tbody tr")
        assert rows.count() == 6  # three of each task, the oldest first
        assert rows.first.locator("th, td").all_inner_texts() == [
            "42", "totals[0]", "at Spark", "2", "10,000", "3 s"
        ]  # fmt: skip
        assert "publishing" in rows.nth(2).inner_text()
        sums = page.get_by_role("region", name="Spark", exact=True).locator("tbody tr").first
        for text in ("totals[0]", "41", "410,000", "1.9 s", "2.2 s"):
            assert text in sums.inner_text()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert violations(page) == []


def test_a_topology_without_spark_has_no_spark_section(open_page: Open) -> None:
    with served_page(PreparedSource(quiet()), TOKEN, port=0) as url:
        page = open_page(url, "#/t/quiet")
        wait_for(page, "h2", "Workers")
        assert "Spark" not in text_of(page, "main")
