"""Checks docs/ORIGINS.md: each row names a file, a test and a page, or says why there is none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tests.fidelity.test_page import TEST, evidence
from tests.structure.reading import text

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
    checked: str


def rows() -> list[Row]:
    origins, section = [], ""
    for line in text(PAGE).splitlines():
        if line.startswith("#"):
            section = line.lstrip("# ")
        elif line.startswith("| ") and not line.startswith("| mechanism"):
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            origins.append(Row(section, *cells))
    return origins


def test_rows_have_a_file_and_a_test_or_say_why_not() -> None:
    """tests/structure/test_files.py checks that they exist."""
    for row in rows():
        assert re.match(r"built\b|left out: .", row.verdict), row
        if row.verdict.startswith("built"):
            assert "`sunshower/" in row.ours, row
            assert TEST.findall(row.tests), f"no test in {row}"
            assert NAMED.findall(row.example) or LINKED.findall(row.example), f"no page in {row}"


def test_each_row_says_whether_it_was_run_against_the_original() -> None:
    assert not [row for row in rows() if row.checked != evidence(row.tests)]


def test_a_linked_page_has_what_a_row_says_is_built() -> None:
    """The classes and options that the verdict begins with: `built: `StormOffsets`; …`."""
    checked = 0
    for row in rows():
        pages = [text(PAGE.parent / page) for page in LINKED.findall(row.example)]
        built = re.findall(r"`([A-Za-z]\w+)[`(=.]", row.verdict.partition(";")[0])
        if pages and built:
            missing = [name for name in built if not any(name in page for page in pages)]
            assert not missing, f"{row.example} of {row.mechanism!r} has no {missing}"
            checked += 1
    assert checked > 10


def test_all_five_documents_are_there() -> None:
    titles = [line for line in text(PAGE).splitlines() if line.startswith("## ")]
    assert [title[3] for title in titles] == ["1", "2", "3", "4", "5"]
