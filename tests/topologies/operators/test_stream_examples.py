"""Our versions of examples of Bytewax and Kafka Streams are no longer than the originals."""

from __future__ import annotations

import ast
import json
import re
import runpy
import sysconfig
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sunshower import run_inline

FOLDER = Path(__file__).resolve().parents[3] / "examples/streams"
Rows = list[dict[str, Any]]


def word_count(rows: Rows) -> None:
    text = Path(sysconfig.get_path("stdlib"), "json/decoder.py").read_text(encoding="utf-8")
    words = Counter(re.findall(r'[^\s!,.?":;0-9]+', text.lower()))
    assert Counter({row["word"]: row["count"] for row in rows}) == words


def search_sessions(rows: Rows) -> None:
    assert sorted((row["user"], row["click_through"]) for row in rows) == [(1, 1), (1, 1), (2, 0)]


def ad_clicks(rows: Rows) -> None:
    shown = sorted((row["ad"], row["at"], row["clicked_at"] or 0) for row in rows)
    assert shown == [("car", 0, 0), ("gadget", 2, 4), ("newspaper", 1, 3), ("newspaper", 1, 5)]


def page_views(rows: Rows) -> None:
    """A view may be processed before the profile of its user."""
    counts = Counter[int]()
    for row in rows:
        counts[row["window"]] += row["views"]
    ends = range(60, 60 * 25, 60)
    expected = {end: sum(end - 300 <= n * 20 < end for n in range(60)) for end in ends}
    assert counts == {end: views for end, views in expected.items() if views}
    assert {row["region"] for row in rows} >= {"asia", "africa"}


# The lines of the originals, without comments and blank lines: of Bytewax 0.21, and of
# confluentinc/kafka-streams-examples 7.
@pytest.mark.parametrize(
    ("check", "lines"), [(word_count, 15), (search_sessions, 86), (ad_clicks, 86), (page_views, 70)]
)
def test_an_example_is_at_most_as_long_as_the_original(
    check: Callable[[Rows], None], lines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = FOLDER / f"{check.__name__}.py"
    topology = runpy.run_path(str(file))["topology"]
    run_inline(topology.graph())
    (written,) = tmp_path.glob("*.jsonl")
    check([json.loads(line) for line in written.read_text(encoding="utf-8").splitlines()])
    text = file.read_text(encoding="utf-8")
    docstring = ast.parse(text).body[0]
    code = text.splitlines()[docstring.end_lineno :]
    assert len([line for line in code if line.strip()]) <= lines


def test_every_example_is_tested() -> None:
    names = {path.stem for path in FOLDER.glob("*.py")}
    assert names == {
        check.__name__ for check in (word_count, search_sessions, ad_clicks, page_views)
    }
