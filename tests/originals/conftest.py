"""Fixtures with Storm's own classes; without a JDK, which CI has, their tests are skipped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.originals.programs import STORM, STORM_KAFKA, Program
from tests.servers import obtain


@pytest.fixture(scope="session")
def jdk() -> None:
    """A compiler for Java, and the jars."""
    if shutil.which("javac") is None:
        assert not os.environ.get("CI"), "CI needs a JDK for the tests against Storm"
        pytest.skip("there is no javac")
    obtain(STORM, STORM_KAFKA)


@pytest.fixture(scope="session")
def storm(jdk: None) -> Iterator[Program]:
    """Classes of Storm 2.8."""
    with Program("Storm2", STORM) as program:
        yield program
