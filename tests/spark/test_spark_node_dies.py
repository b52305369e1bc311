"""A node of a Ray cluster with Spark's executor is lost: each batch is in the table once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.leftovers import check_program
from tests.spark.conftest import require_spark


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.spark
@pytest.mark.timeout(600)  # it starts a Ray and a session of Spark
def test_the_node_of_the_executor_dies_in_the_middle_of_a_job(tmp_path: Path) -> None:
    require_spark()
    check_program("tests.spark.node_dies", tmp_path)
