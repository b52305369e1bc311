"""Type checkers see the record types through the graph: mypy reads a right and a wrong topology."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "typing"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def complaints() -> dict[str, dict[int, str]]:
    """File name → line number → what `mypy --strict` says of it."""
    files = [HERE / "right.py", HERE / "wrong.py"]
    mypy = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
    done = subprocess.run([*mypy, *files], cwd=ROOT, capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    found: dict[str, dict[int, str]] = {file.name: {} for file in files}
    for path, line, message in re.findall(r"(?m)^(.+?):(\d+): error: (.+)$", done.stdout):
        found[Path(path).name][int(line)] = message
    return found


def test_right_topology_gets_no_complaint(complaints: dict[str, dict[int, str]]) -> None:
    assert complaints["right.py"] == {}


def test_wrong_topology_gets_one_at_exactly_the_wrong_lines(
    complaints: dict[str, dict[int, str]],
) -> None:
    lines = (HERE / "wrong.py").read_text().splitlines()
    expected = {number for number, line in enumerate(lines, start=1) if "# wrong" in line}
    assert complaints["wrong.py"].keys() == expected, complaints["wrong.py"]
