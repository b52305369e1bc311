"""Rows of the pages name tests that fail without the mechanism of the row."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.docs import test_origins_page as origins
from tests.fidelity import test_page as fidelity
from tests.mutants.rows import ROWS, RowMutant
from tests.structure.reading import ROOT, text

ids = pytest.mark.parametrize("mutant", ROWS, ids=lambda mutant: mutant.row)
RUN = """
import pytest, sys
from tests.mutants.rows import ROWS
mutant = ROWS[int(sys.argv[1])]
with mutant.defect.made():
    sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", mutant.test]))
"""


@pytest.mark.mutants
@ids
def test_a_test_of_the_row_fails_without_its_mechanism(mutant: RowMutant) -> None:
    arguments = [sys.executable, "-c", RUN, str(ROWS.index(mutant))]
    run = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode == pytest.ExitCode.OK and " skipped" in run.stdout:
        pytest.skip(f"{mutant.test} is skipped here")
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr
    assert " failed" in run.stdout, run.stdout


@ids
def test_the_row_names_the_test_and_the_page_says_what_was_broken(mutant: RowMutant) -> None:
    cells = {
        "FIDELITY": [(row.behaviour, row.tests) for row in fidelity.rows()],
        "ORIGINS": [(row.mechanism, row.tests) for row in origins.rows()],
    }
    (tests,) = [tests for name, tests in cells[mutant.page] if name.startswith(mutant.row)]
    assert f"`{mutant.test}`" in tests
    name = mutant.test.partition("::")[2]
    table = text(fidelity.PAGE).partition(fidelity.BROKEN)[2].splitlines()
    (line,) = [line for line in table if line.startswith(f"| {mutant.page}: {mutant.row}")]
    assert f"| {mutant.broken} | `{name}` |" in line
