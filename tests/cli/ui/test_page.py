"""Tests of settings of the process while it serves the page."""

from __future__ import annotations

import gc
from pathlib import Path

from sunshower.cli.ui.page import opened_page
from tests.web.prepared import PreparedSource, quiet


def test_garbage_is_collected_seldom_while_the_page_is_served(tmp_path: Path) -> None:
    source = PreparedSource(quiet())
    seldom = gc.get_threshold()  # tests collect garbage seldom, too
    gc.set_threshold(*(before := (700, 10, 10)))
    with opened_page(source, port=0, folder=tmp_path):
        assert gc.get_threshold() > before
    assert gc.get_threshold() == before
    gc.set_threshold(*seldom)
