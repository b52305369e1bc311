"""Runs the program of docs/OPERATING.md."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs/OPERATING.md"


def test_the_program_of_the_page_replays_a_letter(tmp_path: Path) -> None:
    ((name, code),) = re.findall(
        r"^```python\n# (\w+\.py)\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    (tmp_path / name).write_text(code)
    found = runpy.run_path(str(tmp_path / name))
    assert found["second"].answers["sales"] == [["acked"]]
