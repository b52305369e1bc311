"""Runs a topology inline in a test, on virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sunshower.arguments import COUNT, MOMENT, checked
from sunshower.clock import VIRTUAL_DATE, ManualClock
from sunshower.errors import TopologyError
from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.inline import Finished, run_inline
from sunshower.testing.observed_run import ObservedRun
from sunshower.testing.prepared_graph import PreparedGraph, check_component, prepare_graph
from sunshower.topologies.topology import Topology

_STEPS_MAX = 100_000


class InlineRun(ObservedRun):
    """A finished run in the test's own process and thread."""

    def __init__(self, prepared: PreparedGraph, finished: Finished) -> None:
        super().__init__(prepared)
        self._finished = finished

    @property
    def snapshot(self) -> Snapshot:
        return self._finished.snapshot

    def results(self, component: str) -> list[Any]:
        check_component(self._prepared.declared, component)
        return [*self._finished.results[component]]

    def answers(self, requests: str) -> list[list[Any]]:
        """The rows of the answer to each request of a stream, in order."""
        return [*self._finished.answers[requests]]


@checked(TopologyError, "testing.run", steps_max=COUNT, date=MOMENT)
def run(
    topology: Topology,
    replaced: Mapping[str, Any] | None = None,
    *,
    requests: Mapping[str, Sequence[Any]] | None = None,
    seed: int = 0,
    steps_max: int = _STEPS_MAX,
    date: datetime = VIRTUAL_DATE,
) -> InlineRun:
    """Run a topology until everything is processed, in this process and thread.

    `replaced`: component → what takes its place in the test. For a spout: a list of records, a
    Feeder, or another Spout; for a bolt: a function or a Bolt. `requests`: stream → what to ask.
    Time is virtual: waits take none; it begins at `date`, which has a time zone. No process
    crashes; for that there is `simulate`. An exception of user code outside the processing of a
    record is raised as TopologyFailed, and a bolt that changes its input record is an error.
    Feeders end when all that was fed is processed. Raises as `sunshower.run_inline`.
    """
    prepared = prepare_graph(topology, replaced or {})
    for feeder in prepared.feeders.values():
        feeder.end()
    clock = ManualClock(date=date)
    finished = run_inline(
        prepared.graph, seed=seed, clock=clock, steps_max=steps_max, requests=requests
    )
    return InlineRun(prepared, finished)
