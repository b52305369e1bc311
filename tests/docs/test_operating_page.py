"""Runs the program of docs/OPERATING.md."""

from __future__ import annotations

import runpy
from pathlib import Path

from tests.docs.pages import page, programs


def test_the_program_of_the_page_replays_a_letter(tmp_path: Path) -> None:
    ((name, code),) = programs(page("OPERATING")).items()
    (tmp_path / name).write_text(code)
    names = runpy.run_path(str(tmp_path / name))
    assert names["second"].answers["sales"] == [["acked"]]
