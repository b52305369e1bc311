"""docs/ORIGINS.md: what its rows name exists, and each row has a test or a reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.fidelity.test_page import TEST
from tests.structure.reading import ROOT, text

PAGE = Path("docs/ORIGINS.md")
NAMED = re.compile(r"`((?:sunshower|examples|tests)/[\w/]+\.py)[`:]")
LINKED = re.compile(r"\]\(([\w./]+\.md)\)")


class Row(NamedTuple):
    """One line of the page's tables."""

    section: str
    mechanism: str
    ours: str
    tests: str
    example: str
    verdict: str


def rows() -> list[Row]:
    found, section = [], ""
    for line in text(PAGE).splitlines():
        if line.startswith("#"):
            section = line.lstrip("# ")
        elif line.startswith("| ") and not line.startswith("| mechanism"):
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            found.append(Row(section, *cells))
    return found


every_row = pytest.mark.parametrize("row", rows(), ids=lambda row: row.mechanism[:60])


@every_row
def test_what_a_row_names_exists(row: Row) -> None:
    for file in NAMED.findall(" ".join(row)):
        assert (ROOT / file).is_file(), file
    for page in LINKED.findall(row.example):
        assert (ROOT / "docs" / page).is_file(), page
    for path, name in TEST.findall(row.tests):
        assert re.search(rf"^def {name}\(", text(Path(path)), re.MULTILINE), f"{path}: no {name}"


@every_row
def test_a_row_has_a_file_and_a_test_or_says_why_not(row: Row) -> None:
    assert re.match(r"built\b|left out: .", row.verdict), row.verdict
    if row.verdict.startswith("built"):
        assert "`sunshower/" in row.ours
        assert TEST.findall(row.tests), "no test"
        assert NAMED.findall(row.example) or LINKED.findall(row.example), "no example or page"


def test_all_five_documents_are_there() -> None:
    titles = [line for line in text(PAGE).splitlines() if line.startswith("## ")]
    assert [title[3] for title in titles] == ["1", "2", "3", "4", "5"]
