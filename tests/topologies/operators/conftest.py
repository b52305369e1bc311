"""Fixtures: sources of rows, tables and batches, and a function that runs operators on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sunshower import Records, Topology, run_inline
from sunshower.clock import ManualClock
from sunshower.topologies.streams import Stream
from sunshower.trident import BatchStream, FixedBatchSpout, InMemory, batches
from tests.topologies.operators.kinds import (
    SALES,
    AnyStream,
    Assemble,
    Kept,
    Run,
    Sale,
    Source,
    Tables,
)


@pytest.fixture(params=["rows", "columns", "batches"])
def source(request: pytest.FixtureRequest) -> Source:
    """Return a function that declares a source of rows, of tables or of batches."""

    def declare(topology: Topology, sales: Sequence[Sale]) -> AnyStream:
        if request.param == "rows":
            return topology.spout("sales", Records(list(sales), type=Sale))
        if request.param == "columns":
            return topology.spout("sales", Tables(sales))
        spout = FixedBatchSpout(list(sales), 25, type=Sale)
        return batches(topology, "sales", spout, store=InMemory())

    return declare


@pytest.fixture
def run(source: Source) -> Run:
    """Return a function that runs operators in this process and returns the rows of each output."""

    def run(assemble: Assemble, sales: Sequence[Sale] = SALES) -> list[list[Any]]:
        topology = Topology("both")
        for number, stream in enumerate(assemble(source(topology, sales))):
            rows = stream.records(f"out-{number}") if isinstance(stream, BatchStream) else stream
            assert isinstance(rows, Stream)
            rows.shuffle().bolt(f"kept-{number}", Kept)
        results = run_inline(topology.graph(), clock=ManualClock()).results
        return [rows[0] for id, rows in results.items() if id.startswith("kept-")]

    return run
