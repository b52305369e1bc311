"""Tests that an experiment iterates over sets in the same order in each run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Write
from tests.structure.reading import ROOT

pytestmark = pytest.mark.ray

CODE = """
    import sys
    print(hash("a word"), file=sys.stderr)
"""


def hash_in(file: Path, environment: dict[str, str]) -> str:
    """What a fresh `experiment run` has for a word; the file has no experiment, so it ends soon."""
    command = [sys.executable, "-m", "sunshower", "experiment", "run", str(file)]
    done = subprocess.run(
        command, env={**environment, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert "has no experiment" in done.stderr
    return done.stderr.splitlines()[0]


@pytest.mark.slow
def test_hashes_are_the_same_in_every_run_unless_somebody_chose_others(write: Write) -> None:
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    file = write(CODE)
    first = hash_in(file, usual)
    assert hash_in(file, usual) == first
    assert hash_in(file, {**usual, "PYTHONHASHSEED": "3"}) != first
