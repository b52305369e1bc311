"""docs/FIDELITY.md, read as a test: every row is held by a test, or says why none holds it.

Storm: org/apache/storm/ in every row, but for what only the article says.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.structure.reading import FILES, ROOT, syntax, text

PAGE = Path("docs/FIDELITY.md")
KAFKAS = "Kafka's behaviour"  # the head of tables on what its own consumers do
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
HERE = [p for p in FILES if p.parts[:2] == ("tests", "fidelity") and p.name.startswith("test_")]
RULES = [path for path in HERE if path.name != "test_page.py"]


class Row(NamedTuple):
    """One line of the page's tables."""

    behaviour: str
    storm: str
    ours: str
    tests: str
    verdict: str


def rows() -> list[Row]:
    lines = [line for line in text(PAGE).splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [Row(*found) for found in cells if found[0] not in {"Storm's behaviour", KAFKAS}]


def rules_in(path: Path) -> dict[str, ast.FunctionDef]:
    return {
        node.name: node
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


every_row = pytest.mark.parametrize("row", rows(), ids=lambda row: row.behaviour[:60])


@every_row
def test_row_says_same_or_different_or_later(row: Row) -> None:
    assert re.match(r"(same|different|later)\b|not applicable: ", row.verdict), row.verdict
    assert row.verdict != "different", "and why?"


@every_row
def test_row_cites_a_file_of_storm_or_kafka(row: Row) -> None:
    java = r"org/apache/(storm|kafka)/[\w/]+\.java"
    scala = r"(org/apache/spark/streaming/)?kafka/[\w/]+\.scala"
    assert re.search(rf"`({java}|{scala})(:[\d,-]+)?`", row.storm), row.storm


@every_row
def test_row_has_a_test_that_exists_or_says_why_not(row: Row) -> None:
    if row.tests == "–":
        assert row.verdict.startswith("later: ") or "no test could" in row.verdict, row.verdict
        return
    named = TEST.findall(row.tests)
    assert named, f"no test in {row.tests!r}"
    for path, name in named:
        assert name in text(Path(path)), f"{path} has no {name}"


@every_row
def test_row_names_a_file_of_ours_unless_it_comes_later(row: Row) -> None:
    files = re.findall(r"`(sunshower/[\w/]+\.py)`", row.ours)
    assert files or row.verdict.startswith("later: ")
    assert not [file for file in files if not (ROOT / file).is_file()]


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_every_rule_has_a_row_and_cites_its_storm_file(path: Path) -> None:
    named = {name for _, name in TEST.findall(text(PAGE))}
    for name, node in rules_in(path).items():
        assert name in named, f"{path}: {name} has no row in {PAGE}"
        cited = ast.get_docstring(node) or ""
        assert re.search(r"Storm: org/apache/storm/[\w/]+\.java", cited), f"{path}: {name}"
