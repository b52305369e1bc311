"""Runs topologies in the simulator: crashes, outages, and records fed during a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sunshower import (
    Bolt,
    Collector,
    Derived,
    Line,
    Records,
    Topology,
    Tuple,
    batch,
    count,
    testing,
)
from sunshower.clock import SystemClock
from sunshower.errors import ClusterError, ConfigError, ExperimentError, TopologyError
from sunshower.experiments import Layout, at, away, component, kill, master
from sunshower.failures import Cause
from sunshower.testing import (
    Feeder,
    Shared,
    SimulatedRun,
    assert_counts,
    assert_lossless,
)
from tests.seeds import seeds
from tests.testing.shop import LINES, WORDS, Database, Store, Word, counting

Simulate = Callable[..., SimulatedRun]


@pytest.mark.parametrize("bolt", ["split", "count", "store"])
def test_nothing_is_lost_when_a_process_crashes(bolt: str, simulate: Simulate) -> None:
    run = simulate(counting(), {"lines": LINES * 5})
    run.crash(bolt, after=3)
    run.finish()
    assert run.snapshot.restarts == 1
    assert run.counts("lines").replayed > 0
    assert_lossless(run)
    assert_counts(run.emitted("split"), [Word(word) for word in WORDS * 5], at_least=True)


def test_a_crash_comes_after_the_given_number_of_records(simulate: Simulate) -> None:
    database = Database()
    run = simulate(counting(Store(database)), {"lines": LINES * 5})
    run.crash("store", after=3)
    while run.snapshot.restarts == 0:
        before = len(database.totals)
        run.advance(0.01)
    assert before <= 3
    run.finish()
    written = Counter(database.totals)
    assert sum(written.values()) == run.counts("count").emitted
    assert sum(written.values()) > 30  # the three records before the crash, and all replays


def test_a_crash_that_does_not_happen_is_an_error(simulate: Simulate) -> None:
    run = simulate(counting(), {"lines": LINES})
    run.crash("count", after=10)
    with pytest.raises(ClusterError, match=r"not crashed: 'count' \(records too few: 4\)"):
        run.finish()


class Pass(Bolt[Line, Line]):
    def execute(self, tuple: Tuple[Line], out: Collector[Line]) -> None:
        out.emit(tuple.record, tuple)
        out.ack(tuple)


@batch
def columns(table: pa.Table) -> Derived:
    return Derived(table, np.arange(len(table)))


async def waiting(total: tuple[str, int]) -> list[tuple[str, int]]:
    return [total]


def bolts_of_each_kind() -> Topology:
    """Declare a chain with one bolt of each kind."""
    topology = Topology("levels")
    lines = topology.spout("lines", Records([], type=Line))
    passed = lines.shuffle().bolt("manual", Pass, parallelism=2)
    table = passed.shuffle().bolt("columns", columns, fields=Line)
    mapped = table.flat_map(lambda line: [line] * 2, fields=Line)  # type: ignore[call-overload]
    totals = mapped.group_by("text").aggregate(count())
    totals.shuffle().bolt("waiting", waiting, fields=["text", "count"])
    return topology


@pytest.mark.parametrize("bolt", ["manual", "columns", "flat_map", "count"])
def test_bolts_of_every_kind_can_crash(bolt: str, simulate: Simulate) -> None:
    run = simulate(bolts_of_each_kind(), {"lines": [Line(str(n)) for n in range(20)]})
    run.crash(bolt, after=3)
    run.finish()
    assert run.snapshot.restarts == 1
    assert_lossless(run)


def test_a_spout_and_an_async_function_are_killed_by_inject(simulate: Simulate) -> None:
    run = simulate(bolts_of_each_kind(), {"lines": Feeder(*LINES)})
    for place in ("lines", "waiting"):
        with pytest.raises(TopologyError, match=rf"inject\(kill\(component\('{place}'\)\)\)"):
            run.crash(place, after=1)
    with pytest.raises(TopologyError, match="after"):
        run.crash("manual", after=0)
    run.inject(kill(component("lines")), kill(component("waiting")))
    assert_lossless(run.finish())
    assert run.snapshot.restarts == 2


def test_nothing_is_acked_or_charged_while_a_store_is_unavailable(
    simulate: Simulate,
) -> None:
    feeder = Feeder[Line]()
    run = simulate(counting(), {"lines": feeder})
    feeder.feed(LINES[0])
    run.advance(1)
    assert feeder.acks == [LINES[0]]
    feeder.feed(LINES[1])
    begun_s = run.run.now()
    run.inject(away("store", for_s=60))
    assert run.run.now() - begun_s >= 60
    assert feeder.acks == [LINES[0]]
    assert feeder.pending == [LINES[1]]
    assert {failure.cause for _, failure in feeder.failures} == {Cause.UNAVAILABLE}
    assert_lossless(run.finish())


@seeds(20)
def test_an_outage_that_is_injected_at_the_start_precedes_the_first_record(seed: int) -> None:
    feeder = Feeder(*LINES)
    with testing.simulate(counting(), {"lines": feeder}, seed=seed) as run:
        run.inject(away("store", for_s=60))
        assert feeder.acks == []
        assert_lossless(run.finish())


def test_steps_of_a_plan_are_carried_out_at_their_times(simulate: Simulate) -> None:
    run = simulate(counting(), {"lines": Feeder(*LINES)})
    run.inject(*at(5, kill(master())), *at(2, kill(component("split"))))
    assert run.run.now() > 4
    assert_lossless(run.finish())


def test_a_fault_in_an_unknown_component_is_refused(simulate: Simulate) -> None:
    run = simulate(counting(), {"lines": LINES})
    with pytest.raises(ExperimentError, match="no component 'shop'"):
        run.inject(away("shop", for_s=60))


def test_a_run_that_finishes_before_its_fault_raises_an_error(simulate: Simulate) -> None:
    run = simulate(counting(), {"lines": LINES})
    with pytest.raises(ClusterError, match=r"not injected: .* the run was finished before"):
        run.inject(*at(1000, kill(master())))


class Forgetful(Bolt[Line, None]):
    def execute(self, tuple: Tuple[Line], out: Collector[None]) -> None:
        """Never ack."""


def test_the_error_of_a_run_that_does_not_end_names_the_pending_records(simulate: Simulate) -> None:
    topology = Topology("forgetful", message_timeout_s=1000)
    lines = topology.spout("lines", Records([], type=Line))
    lines.shuffle().bolt("forget", Forgetful)
    run = simulate(topology, {"lines": LINES})
    with pytest.raises(ClusterError, match=r"pending by spout: \{'lines': 2\}"):
        run.finish(within_s=100)
    with pytest.raises(AssertionError, match="pending records of spout 'lines': 2; of spout"):
        assert_lossless(run)


def test_time_is_virtual(simulate: Simulate) -> None:
    begun_s = SystemClock().now()
    simulate(counting(), {"lines": Feeder[Line]()}).advance(200)
    assert SystemClock().now() - begun_s < 100


def test_one_seed_gives_the_same_run_again(simulate: Simulate) -> None:
    def events() -> tuple[Any, ...]:
        run = simulate(counting(), {"lines": LINES * 5}, layout=Layout.PACK)
        run.crash("count", after=2)
        run.finish()
        return run.run.now(), run.emitted("count"), run.counts("lines")

    assert events() == events()


def test_a_test_has_its_seed_in_its_name(
    simulate: Simulate, request: pytest.FixtureRequest
) -> None:
    run = simulate(counting(), {"lines": LINES})
    assert f"seed {run.seed}" in request.node.name


def test_requests_are_answered_while_the_topology_runs(simulate: Simulate) -> None:
    topology = Topology("asked")
    topology.requests("double", ["n"]).map(lambda row: (row[0] * 2,), fields=["n"]).answer()
    assert simulate(topology).ask("double", 4) == [(8,)]


def test_a_shared_object_cannot_be_sent_to_another_process(simulate: Simulate) -> None:
    class Fake(Shared): ...

    import pickle

    with pytest.raises(ConfigError, match="a Fake cannot be sent to another process"):
        pickle.dumps(Fake())
