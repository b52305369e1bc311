"""Checks docs/CLUSTERS.md: it shows and describes the settings of the head of a local Ray."""

from __future__ import annotations

import json
import re
from pathlib import Path

from sunshower.actors.starting import SYSTEM_CONFIG

PAGE = (Path(__file__).resolve().parents[2] / "docs/CLUSTERS.md").read_text(encoding="utf-8")


def test_settings_of_the_head_are_those_of_a_local_ray() -> None:
    shown = re.search(r"--system-config='(\{.*?\})'", PAGE, re.DOTALL)
    assert shown
    assert json.loads(shown[1]) == SYSTEM_CONFIG
    rows = re.findall(r"^\| `(\w+)` \| .* \|$", PAGE, re.MULTILINE)
    assert set(SYSTEM_CONFIG) <= set(rows)
