"""Parses every Python code block of the README and of docs/, and draws the pictures again."""

from __future__ import annotations

import ast
import re
import runpy
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?: {4}.*\n|\n(?= {4}))+")
PYTHON = re.compile(r"^(class|def|from|import|with|@)\b|^\w+ = |^\w+\(", re.MULTILINE)


class Block(NamedTuple):
    """One piece of code on a page."""

    page: str
    line: int
    code: str


def blocks() -> Iterator[Block]:
    for path in PAGES:
        page, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        for fence in FENCE.finditer(text):
            if fence[2] == "python":
                code = textwrap.dedent(fence[3])
                yield Block(page, text.count("\n", 0, fence.start()) + 1, code)
        without = FENCE.sub(lambda fenced: "\n" * fenced[0].count("\n"), text)
        for indented in INDENTED.finditer(without):
            code = textwrap.dedent(indented[0])
            if PYTHON.search(code):
                yield Block(page, without.count("\n", 0, indented.start()) + 1, code)


@pytest.mark.parametrize("block", [*blocks()], ids=lambda block: f"{block.page}:{block.line}")
def test_python_code_parses(block: Block) -> None:
    ast.parse(block.code, f"{block.page}:{block.line}")


def test_indented_code_that_was_reflowed_is_found() -> None:
    page = (
        "Text:\n\n    class Pages(Spout):\n        emits = Page def partitions(self): return []\n"
    )
    (indented,) = INDENTED.finditer(page)
    assert PYTHON.search(textwrap.dedent(indented[0]))
    with pytest.raises(SyntaxError):
        ast.parse(textwrap.dedent(indented[0]))


def test_the_pictures_are_those_that_the_program_draws() -> None:
    """After a change: `python docs/site/pictures.py`."""
    for name, draw in runpy.run_path(str(ROOT / "docs/site/pictures.py"))["PICTURES"].items():
        path = ROOT / f"docs/images/{name}.svg"
        assert path.read_text(encoding="utf-8") == draw().svg(), name
        uses = [page.name for page in PAGES if f"images/{name}.svg)" in page.read_text("utf-8")]
        assert uses, f"no page has {name}.svg"
