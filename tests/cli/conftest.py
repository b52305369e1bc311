"""Topology files for the command line to load."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

HEAD = """
    from __future__ import annotations
    from collections.abc import Iterator
    from typing import NamedTuple
    from sunshower import Bolt, Context, Counter, Line, Number, Stdout, TextFiles, Topology
"""
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a topology file: the usual imports, then `code`."""

    def file(code: str, name: str = "some_topology.py") -> Path:
        path = tmp_path / name
        path.write_text(dedent(HEAD) + dedent(code))
        return path

    return file


@pytest.fixture(autouse=True)
def _forget_modules() -> Iterator[None]:
    """A file of one test is not imported by the next one."""
    modules, path = dict(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - set(modules):
        if "pytest-of" in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    sys.path[:] = path
