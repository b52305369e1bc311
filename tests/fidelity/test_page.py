"""Checks docs/FIDELITY.md: each row has a test, or says why it has none.

Storm: org/apache/storm/ in every row, except those of the articles alone.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

from tests.structure.reading import FILES, syntax, text

PAGE = Path("docs/FIDELITY.md")
BROKEN = "\n## Rows that were checked by breaking them\n"  # see tests/mutants/test_rows.py
KAFKAS = "Kafka's behaviour"  # the head of the tables about Kafka's own consumers
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
    checked: str


def evidence(tests: str) -> str:
    """What the last column says of a row with these tests."""
    return "run against the original" if "`tests/originals/" in tests else "by reading"


def rows() -> list[Row]:
    page = text(PAGE).partition(BROKEN)[0]
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [Row(*row) for row in cells if row[0] not in {"Storm's behaviour", KAFKAS}]


def rules_in(path: Path) -> dict[str, ast.FunctionDef]:
    return {
        node.name: node
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_verdict_of_each_row_is_same_different_or_not_applicable() -> None:
    for row in rows():
        assert re.match(r"(same|different)\b|not applicable: ", row.verdict), row
        assert row.verdict != "different", f"without a reason: {row}"


def test_each_row_says_whether_it_was_run_against_the_original() -> None:
    assert not [row for row in rows() if row.checked != evidence(row.tests)]


def test_rows_cite_a_file_of_storm_or_kafka() -> None:
    java = r"org/apache/(storm|kafka)/[\w/]+\.java"
    scala = r"(org/apache/spark/streaming/)?kafka/[\w/]+\.scala"
    cited = re.compile(rf"`({java}|{scala})(:[\d,-]+)?`")
    assert not [row for row in rows() if not cited.search(row.storm)]


def test_rows_have_a_test_or_say_why_not() -> None:
    """tests/structure/test_files.py checks that the tests exist."""
    for row in rows():
        if row.tests == "–":
            assert "no test could" in row.verdict, row
        else:
            assert TEST.search(row.tests), f"no test in {row}"


def test_rows_name_a_file_of_ours() -> None:
    """tests/structure/test_files.py checks that the file exists."""
    files = re.compile(r"`sunshower/[\w/]+\.py`")
    assert not [row for row in rows() if not files.search(row.ours)]


def test_every_rule_has_a_row_and_cites_its_storm_file() -> None:
    named = {name for _, name in TEST.findall(text(PAGE))}
    for path in RULES:
        for name, node in rules_in(path).items():
            assert name in named, f"{path}: {name} has no row in {PAGE}"
            cited = ast.get_docstring(node) or ""
            assert re.search(r"Storm: org/apache/storm/[\w/]+\.java", cited), f"{path}: {name}"
