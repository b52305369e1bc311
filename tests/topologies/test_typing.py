"""Type checkers infer the record types of streams and batches: mypy checks right and wrong ones."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

# Of the extra `dev`, not `test`: it answers the same on each Python.
pytest.importorskip("mypy", reason="mypy is missing (make setup EXTRAS=dev)")

TESTS = Path(__file__).parents[1]


def test_mypy_reports_exactly_the_wrong_lines() -> None:
    """A right file has none; one process checks all files, because it reads Sunshower first."""
    files = sorted(TESTS.glob("t*/typing/*.py"))
    assert len(files) == 4
    mypy = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
    done = subprocess.run(
        [*mypy, *files], cwd=TESTS.parent, capture_output=True, text=True, check=False
    )
    assert not done.stderr, done.stderr
    errors = re.findall(r"(?m)^(.+?):(\d+): error: ", done.stdout)
    expected = {
        (file.name, number)
        for file in files
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1)
        if "# wrong" in line
    }
    assert {(Path(path).name, int(line)) for path, line in errors} == expected, done.stdout
