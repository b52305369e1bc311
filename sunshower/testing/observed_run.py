"""The results of a run for a test: captured streams, acks, failures, counters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sunshower.errors import TopologyError
from sunshower.failures import Failure
from sunshower.runtime.events.metrics import Counts, Snapshot
from sunshower.testing.feeder import Feeder
from sunshower.testing.prepared_graph import PreparedGraph, check_component


class ObservedRun:
    """The base of runs in tests. Every method raises UnknownComponent for an unknown component."""

    def __init__(self, prepared: PreparedGraph) -> None:
        self._prepared = prepared

    @property
    def snapshot(self) -> Snapshot:
        """All counters, with those of the bolts that capture streams."""
        raise NotImplementedError

    def results(self, component: str) -> list[Any]:
        """`result()` of each task of a component."""
        raise NotImplementedError

    def emitted(self, component: str, stream: str | None = None) -> list[Any]:
        """The records of a stream, in the order of their arrival at a bolt of the test. None: the
        default stream, or the only one.

        After a failure, emitted records are there again. Records that were lost with a process, or
        expired, are not. Raises UnknownStream.
        """
        return self._prepared.captured(component, stream)

    def acked(self, spout: str) -> list[Any]:
        """The records of a fed spout whose trees are complete. Raises TopologyError for others."""
        return self.feeder(spout).acks

    def failed(self, spout: str) -> list[tuple[Any, Failure]]:
        """Each failed attempt of a fed spout, with its record. Raises TopologyError for others."""
        return self.feeder(spout).failures

    def counts(self, component: str) -> Counts:
        """The counters of a component: emitted, executed, acked, failed, replayed and so on.

        Records that the test captures are not counted as transferred; `bytes_to` includes them.
        """
        check_component(self._prepared.declared, component)
        counts = self.snapshot.component(component)
        sent = dict(counts.transferred_to)
        for one, stream in self._prepared.streams:
            if one == component and stream in sent:  # one copy of each record is captured
                sent[stream] = max(sent[stream] - counts.emitted_to.get(stream, 0), 0)
        return replace(counts, transferred=sum(sent.values()), transferred_to=sent)

    @property
    def feeders(self) -> dict[str, Feeder[Any]]:
        """The feeders, by spout."""
        return {**self._prepared.feeders}

    @property
    def spouts(self) -> list[str]:
        """The ids of all spouts."""
        return [spout.id for spout in self._prepared.declared.spouts]

    def feeder(self, spout: str) -> Feeder[Any]:
        """The feeder of a spout. Raises TopologyError if it has none."""
        where = check_component(self._prepared.declared, spout)
        if spout not in self._prepared.feeders:
            raise TopologyError(
                f"{where}: it is not fed by the test; give its records, or a Feeder: "
                f"{{{spout!r}: [record, …]}}"
            )
        return self._prepared.feeders[spout]
