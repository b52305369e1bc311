"""Type checkers know the record types of streams: mypy checks a right and a wrong topology."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

# Of the extra `dev`, not `test`: it answers the same on each Python.
pytest.importorskip("mypy", reason="mypy is missing (make setup EXTRAS=dev)")

HERE = Path(__file__).parent / "typing"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def errors() -> dict[str, dict[int, str]]:
    """Return file name → line number → error of `mypy --strict`."""
    files = [HERE / "right.py", HERE / "wrong.py"]
    mypy = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
    done = subprocess.run([*mypy, *files], cwd=ROOT, capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    found: dict[str, dict[int, str]] = {file.name: {} for file in files}
    for path, line, message in re.findall(r"(?m)^(.+?):(\d+): error: (.+)$", done.stdout):
        found[Path(path).name][int(line)] = message
    return found


def test_a_right_topology_has_no_errors(errors: dict[str, dict[int, str]]) -> None:
    assert errors["right.py"] == {}


def test_a_wrong_topology_has_errors_at_exactly_the_wrong_lines(
    errors: dict[str, dict[int, str]],
) -> None:
    lines = (HERE / "wrong.py").read_text().splitlines()
    expected = {number for number, line in enumerate(lines, start=1) if "# wrong" in line}
    assert errors["wrong.py"].keys() == expected, errors["wrong.py"]
