"""A machine of a Ray cluster is lost, and with it Spark's executor: the batch is there once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.leftovers import left_behind, marked
from tests.spark.conftest import obtain

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.ray
@pytest.mark.spark
@pytest.mark.timeout(600)  # a Ray, and a session of Spark, of its own
def test_the_node_of_the_executor_dies_in_the_middle_of_a_job(tmp_path: Path) -> None:
    obtain()
    environment = {**marked(), "PYTHONPATH": str(ROOT)}  # for its nodes' workers, too
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.node_dies", tmp_path],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not left_behind(environment, grace_s=30.0)
