"""Reads the code blocks of a page, and writes its programs into a folder to run them there."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.structure.reading import ROOT

# What docs/TOPOLOGIES.md, docs/STREAMS.md and docs/EXACTLY_ONCE.md lead to, beside themselves.
TOPOLOGIES = ("RECORDS", "FAILURES", "DEPLOYING")
STREAMS = ("AGGREGATES", "STATE", "TIMERS", "WINDOWS", "EVENT_TIME", "JOINS", "TABLES", "REQUESTS",
           "ASYNC", "ARROW")  # fmt: skip
BATCHES = ("BATCH_OPERATORS", "BATCH_SOURCES", "BATCH_STATES")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"# (\S+\.py)\n")


def page(*names: str) -> str:
    """The text of a page of docs/, or of several."""
    return "".join((ROOT / f"docs/{name}.md").read_text(encoding="utf-8") for name in names)


def blocks(text: str, language: str) -> list[str]:
    """The code blocks in a language."""
    return [code for kind, code in _BLOCK.findall(text) if kind == language]


def programs(text: str) -> dict[str, str]:
    """The Python blocks whose first line has the name of their file, by that name."""
    code = blocks(text, "python")
    return {named[1]: each for each in code if (named := _NAMED.match(each))}


def commands(text: str) -> list[list[str]]:
    """The words of each line of the shell blocks, without comments."""
    lines = [line for code in blocks(text, "sh") for line in code.splitlines()]
    return [shlex.split(line, comments=True) for line in lines]


def place_programs(
    text: str, folder: Path, monkeypatch: pytest.MonkeyPatch, also: Iterable[str] = ()
) -> Path:
    """Write the programs of a page into a folder, which is then the working folder, where they can
    be imported. It has links to the files and folders `also` of the repository."""
    for name, code in programs(text).items():
        (folder / name).write_text(code, encoding="utf-8")
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
    for name in also:
        (folder / name).symlink_to(ROOT / name)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    return folder
