"""Spark for tests: one session at a time, started for the first test that asks for it."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from typing import Any

import pytest

from sunshower.spark_integration.local import LocalSpark
from sunshower.spark_integration.port import Gateway, Place

LOCAL = LocalSpark(cores=1, memory="768m", settings={"spark.sql.shuffle.partitions": "1"})
PLACES: dict[str, Place] = {"local": LOCAL}


def obtain() -> None:
    """Without the extra `spark` its tests are skipped; where CI is set, they fail."""
    if not importlib.util.find_spec("pyspark") and not os.environ.get("CI"):
        pytest.skip("no Spark here: pip install 'sunshower[spark]'")


@pytest.fixture(scope="session", params=PLACES)
def place(request: pytest.FixtureRequest) -> Place:
    """Each body of the port; Ray is there for the one that needs it."""
    obtain()
    return PLACES[request.param]


@pytest.fixture(scope="session")
def gateway(place: Place) -> Iterator[Gateway]:
    """A way to its session. Who kills it waits until another is there."""
    found = place.open()
    found.start()
    yield found
    found.close()


@pytest.fixture(scope="session")
def local_spark() -> Iterator[LocalSpark]:
    """Where there is a session in this process."""
    obtain()
    held = LOCAL.open()
    yield LOCAL
    held.close()


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Whoever asks for Spark is marked, and comes last; those of one body one after the other."""
    for item in items:
        if {"place", "local_spark"} & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.spark)
    items.sort(key=lambda item: item.get_closest_marker("spark") is not None)
