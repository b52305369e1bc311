"""Checks docs/GUARANTEES.md: each row names tests that exist, and each test has a row."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from sunshower import Cause
from tests.structure.reading import syntax, text

PAGE = Path("docs/GUARANTEES.md")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_COLUMNS = 6  # of the table of what can happen; the others are shorter
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in text(PAGE).splitlines()
    if line.startswith("| ") and line.count(" | ") == _COLUMNS - 1 and "| what happens" not in line
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:50])
def test_each_row_names_a_test_of_the_core_and_each_death_one_more(row: list[str]) -> None:
    *_, tests = row
    named = TEST.findall(tests)
    assert any(path == "tests/guarantee/test_core.py" for path, _ in named)
    for path, name in named:
        assert f"def {name}(" in text(Path(path)), f"{path} has no {name}"
    if re.search(r"\b(dies|kills)\b", row[0]):
        assert any(path != "tests/guarantee/test_core.py" for path, _ in named)


def test_every_test_of_the_core_has_its_row() -> None:
    here = Path("tests/guarantee/test_core.py")
    tests = [node.name for node in ast.walk(syntax(here)) if isinstance(node, ast.FunctionDef)]
    named = {name for _, name in TEST.findall(text(PAGE))}
    assert {name for name in tests if name.startswith("test_")} <= named


def test_every_named_test_exists() -> None:
    named = TEST.findall(text(PAGE))
    assert [
        f"{path}::{name}" for path, name in named if f"def {name}(" not in text(Path(path))
    ] == []


def test_every_cause_has_its_row() -> None:
    page = text(PAGE)
    assert [cause for cause in Cause if f"`{cause}`" not in page] == []
