"""The results of a run for a test: captured streams, acks, failures, counters."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, Self

import numpy as np

from sunshower.arguments import (
    COUNT,
    MOMENT,
    SECONDS,
    SECONDS_FROM_0,
    AnyOf,
    Instance,
    Methods,
    checked,
)
from sunshower.clock import VIRTUAL_DATE, ManualClock
from sunshower.errors import ClusterError, ExperimentError, TopologyError
from sunshower.experiments.fault_kinds import ActiveFault, Fault, WorkerFault
from sunshower.experiments.fault_plan import Nemesis, Step, settle
from sunshower.failures import Failure
from sunshower.records import key_of
from sunshower.runtime.cluster import Run
from sunshower.runtime.events.metrics import Counts, Snapshot
from sunshower.runtime.inline import Finished, run_inline
from sunshower.runtime.plan import Layout, Plan
from sunshower.simulation.cluster import SimCluster
from sunshower.testing.prepared_graph import Feeder, PreparedGraph, check_component, prepare_graph
from sunshower.topologies.graph import is_internal
from sunshower.topologies.notebooks import Sample
from sunshower.topologies.topology import Topology


class ObservedRun:
    """The base of runs in tests. Every method raises UnknownComponent for an unknown component."""

    def __init__(self, prepared: PreparedGraph) -> None:
        self._prepared = prepared

    @property
    def snapshot(self) -> Snapshot:
        """All counters, with those of the bolts that capture streams."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """The counters, and the first records of each stream, in a notebook."""
        parts = [self.snapshot._repr_html_()]
        for (component, stream), bolt in self._prepared.streams.items():
            if not is_internal(component) and not is_internal(stream):
                schema = self._prepared.declared.components[component].streams[stream].schema
                note = f"stream {stream!r} of {component!r}: {len(bolt.records)} records"
                parts.append(Sample(bolt.records[:_SHOWN], schema, note)._repr_html_())
        return "".join(parts)

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
        for id, stream in self._prepared.streams:
            if id == component and stream in sent:  # one copy of each record is captured
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


# ---- assertions ----------------------------------------------------------------------------------

_SHOWN = 5


def assert_lossless(run: ObservedRun) -> None:
    """Assert that every record that a spout emitted was processed completely.

    That is: nothing is pending, nothing became a dead letter, no untracked record failed, and every
    record that the test fed is acked. Call it after `finish`. What reached a sink is checked by
    `assert_counts`.
    """
    lines = []
    for spout in run.spouts:
        counts = run.counts(spout)
        if counts.pending:
            lines.append(f"pending records of spout {spout!r}: {counts.pending}")
        if counts.dead:
            lines.append(f"dead letters of spout {spout!r}: {counts.dead}")
    for spout, feeder in run.feeders.items():
        if pending := feeder.pending:
            lines.append(f"of spout {spout!r} are not acked: {_some(pending)}")
    if run.snapshot.untracked:
        lines.append(f"an untracked record was lost: {run.snapshot.untracked}")
    if lines:
        raise AssertionError("; ".join(lines))


def assert_counts(
    records: Iterable[Any],
    expected: Mapping[Any, int] | Iterable[Any],
    *,
    at_least: bool = False,
) -> None:
    """Assert that each record occurs as often as expected, in any order.

    `expected`: record → how often, or the records themselves. `at_least`: more often is right,
    too, as after replays; records that are not expected at all are never right.
    """
    tallies = _tally(records)
    if isinstance(expected, Mapping):
        wanted = {key_of(record): (record, count) for record, count in expected.items()}
    else:
        wanted = _tally(expected)
    lines = []
    for key, (record, count) in wanted.items():
        times = tallies.get(key, (record, 0))[1]
        if times < count or (times > count and not at_least):
            lines.append(f"{record!r}: {times} instead of {count}")
    surplus = [record for key, (record, _) in tallies.items() if key not in wanted]
    if surplus:
        lines.append(f"not expected: {_some(surplus)}")
    if lines:
        more = len(lines) - _SHOWN
        raise AssertionError("\n".join(lines[:_SHOWN]) + (f"\n… and {more} more" * (more > 0)))


def _tally(records: Iterable[Any]) -> dict[Hashable, tuple[Any, int]]:
    """Key of a record → the record, and how often it occurs."""
    tallies: dict[Hashable, tuple[Any, int]] = {}
    for record in records:
        key = key_of(record)
        tallies[key] = (record, tallies.get(key, (record, 0))[1] + 1)
    return tallies


def _some(records: list[Any]) -> str:
    shown = ", ".join(f"{record!r:.200}" for record in records[:_SHOWN])
    more = len(records) - _SHOWN
    return shown + (f" … and {more} more" if more > 0 else "")


# ---- inline run ----------------------------------------------------------------------------------

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


# ---- simulated run -------------------------------------------------------------------------------

_DAY_S = 86_400.0
_SOON_S = 1.0


@dataclass(frozen=True)
class _Activation:
    """A step that activates the spouts."""

    activate: Callable[[], None]
    for_s: ClassVar[float] = 0.0

    def check(self, plan: Plan) -> None:
        """Accept every plan."""

    def begin(self, run: Run, plan: Plan, generator: np.random.Generator) -> ActiveFault:
        self.activate()
        return ActiveFault(str(self))

    def __str__(self) -> str:
        return "activate the spouts"


class SimulatedRun(ObservedRun):
    """A run in the simulator. Its time passes only in `advance`, `inject`, `finish` and `ask`.

    The spouts are activated by the first of these. `run` is the run itself, with everything else
    that a cluster can do, such as `run.kill_worker(0)`.
    """

    def __init__(self, prepared: PreparedGraph, seed: int, layout: Layout, date: datetime) -> None:
        super().__init__(prepared)
        self.seed = seed
        self._cluster = SimCluster(seed, date=date)
        self.run = self._cluster.submit(prepared.graph, layout, active=False)
        self._is_active = False

    def crash(self, component: str, after: int) -> None:
        """Kill the process of a bolt once the bolt has processed `after` records from now, before
        any of their acks leaves: `crash("count", after=3)`. Another process takes its place.

        All tasks of the bolt count together. A bolt of columns or of operators on whole batches
        dies after the batch with that record. Raises TopologyError for other components.
        """
        COUNT.check(f"crash of {component!r}: after", after, TopologyError)
        self._prepared.check_can_crash(component)
        self._prepared.points.add(component, after)

    @checked(ExperimentError, faults=AnyOf((Methods(Fault), Instance((Step,), "a Step"))))
    def inject(self, *faults: Fault | Step) -> None:
        """Inject faults, and let time pass until they are over.

        `away("store", for_s=60)` or another fault of sunshower.experiments begins now; a step, such
        as those of `at(5, kill(master()))`, so many seconds from now. If the spouts are not active
        yet, errors and outages of user code that begin now are there before the first record.
        Raises ExperimentError for a fault of something that is not there, and ClusterError for one
        that could not be injected.
        """
        steps = [fault if isinstance(fault, Step) else Step(0.0, fault) for fault in faults]
        for step in steps:
            step.fault.check(self.run.plan)
        begun = [step.fault for step in steps if not step.at_s]
        first = [f for f in begun if isinstance(f, WorkerFault) and f.injected.raises]
        if first and not self._is_active:
            # Workers learn of the fault and of the activation in messages, which take their time.
            delay_s = min(_SOON_S, *(fault.for_s / 2 for fault in first))
            steps.append(Step(delay_s, _Activation(self._activate)))
        else:
            self._activate()
        nemesis = Nemesis(self.run, self.seed)
        nemesis.carry_out(settle(sorted(steps), _DAY_S))
        if nemesis.undone:
            raise ClusterError(f"seed {self.seed}: not injected: {'; '.join(nemesis.undone)}")

    @checked(ClusterError, seconds=SECONDS_FROM_0)
    def advance(self, seconds: float) -> None:
        """Let virtual time pass. Raises TopologyFailed if the topology has failed."""
        self._activate()
        self.run.wait(seconds)

    @checked(ClusterError, within_s=SECONDS)
    def finish(self, within_s: float = 3_600.0) -> Self:
        """Wait until everything is processed, and return this run; feeders end.

        Raises ClusterError if that takes more than `within_s` of virtual time, and if a crash that
        `crash` asked for did not happen.
        """
        for feeder in self._prepared.feeders.values():
            feeder.end()
        self._activate()
        if not self.run.wait(within_s):
            open_ids = {id: self.counts(id).pending for id in self.spouts}
            raise ClusterError(
                f"seed {self.seed}: topology {self.run.topology!r} is not finished after "
                f"{within_s:g} s; pending by spout: {open_ids}. A bolt forgets to ack, or a spout "
                "never ends: feed it"
            )
        if left := self._prepared.points.left():
            places = ", ".join(f"{id!r} (records too few: {count})" for id, count in left.items())
            raise ClusterError(
                f"seed {self.seed}: not crashed: {places}. Feed more records, or give crash() a "
                "smaller `after`"
            )
        return self

    def ask(self, requests: str, value: Any, *, timeout_s: float = 10.0) -> list[Any]:
        """Send a request and return the rows of its answer. Raises as Run.ask."""
        self._activate()
        return self.run.ask(requests, value, timeout_s=timeout_s)

    @property
    def snapshot(self) -> Snapshot:
        return self.run.snapshot()

    def results(self, component: str) -> list[Any]:
        check_component(self._prepared.declared, component)
        return self.run.results(component)

    def close(self) -> None:
        """Stop the topology; the cleanup methods of its code are called."""
        self._cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _activate(self) -> None:
        if not self._is_active:
            self._is_active = True
            self.run.activate()


@checked(TopologyError, date=MOMENT)
def simulate(
    topology: Topology,
    replaced: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    layout: Layout = Layout.ISOLATE,
    date: datetime = VIRTUAL_DATE,
) -> SimulatedRun:
    """Start a topology in the simulator; `replaced` as for `run`.

    The seed determines the run, event by event. By default each task has a process of its own, so
    that a crash hits one task. `date`: that of the clock at the beginning, with a time zone. Close
    the run, or use it in a `with`; the pytest fixture `simulate` does this, and gives each test
    several seeds.
    """
    return SimulatedRun(prepare_graph(topology, replaced or {}), seed, layout, date)
