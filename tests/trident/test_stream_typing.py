"""Type checkers infer the record types in a stream program."""

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


def test_mypy_reports_exactly_the_wrong_lines() -> None:
    files = [HERE / "right_streams.py", HERE / "wrong_streams.py"]
    mypy = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
    done = subprocess.run([*mypy, *files], cwd=ROOT, capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    found = {
        (Path(path).name, int(line))
        for path, line in re.findall(r"(?m)^(.+?):(\d+): error: ", done.stdout)
    }
    lines = files[1].read_text().splitlines()
    expected = {
        (files[1].name, number) for number, line in enumerate(lines, start=1) if "# wrong" in line
    }
    assert found == expected, done.stdout
