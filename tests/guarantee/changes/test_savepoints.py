"""Tests of savepoints: a topology continues from one on another cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from zlib import crc32

import msgpack
import pytest

from sunshower import Bolt, Context, Topology, count, max_, versions
from sunshower.errors import LifecycleError, VersionMismatch
from sunshower.kafka import KafkaOptions, KafkaRecord, KafkaSpout, StartPosition
from sunshower.kafka.consuming.start_position import Where
from sunshower.runtime.control import events
from sunshower.runtime.control.lifecycle import State
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.control.savepoint import Savepoint
from sunshower.runtime.plan import Plan, make_plan
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState
from tests.guarantee.changes.counted import (
    TOTAL,
    Note,
    Word,
    Words,
    check,
    kill_a_process,
    parse,
    program,
)
from tests.seeds import seeds

Make = Callable[[], Topology]


def read_again(savepoint: Savepoint) -> Savepoint:
    """The savepoint after it was written and read."""
    return Savepoint.from_bytes("words.savepoint", savepoint.to_bytes())


def savepoint_of(make: Make) -> Savepoint:
    """The savepoint of a topology after half a second."""
    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(make().graph())
        run.wait(0.5)
        savepoint = run.keep()
        run.kill(0.0)
    return read_again(savepoint)


@seeds(1_000)
def test_no_word_is_missing_after_deaths_before_and_after_a_savepoint(seed: int) -> None:
    state, draw = MemoryState(), Random(seed)
    savepoint, deaths = None, seed % 4
    with SimCluster(seed, latency_s=0.005, nodes=1 + seed % 2) as cluster:
        run = cluster.submit(program(state).graph())
        run.wait(draw.expovariate(1.5))
        for _ in range(draw.randint(0, deaths)):
            kill_a_process(run, draw)
            run.wait(draw.expovariate(8.0))
        try:
            savepoint = read_again(run.keep(draw.choice([0.0, 0.3, None])))
        except LifecycleError as error:
            assert "is finished" in str(error)  # noqa: PT017 (most seeds do not raise)
        run.kill(0.0 if savepoint else None)
    with SimCluster(seed + 1, latency_s=0.005) as cluster:
        run = cluster.submit(program(state).graph(), resume=savepoint)
        for _ in range(draw.randint(0, deaths)):
            run.wait(draw.expovariate(4.0))
            kill_a_process(run, draw)
        assert run.wait(600), run._describe()
        (seen,) = run.results("sink")
    check(state, is_exact=False)
    assert seed % 4 or set(seen) == set(range(TOTAL)), "the sink keeps its state in memory"


def test_without_deaths_each_word_is_counted_once() -> None:
    state = MemoryState()
    savepoint = savepoint_of(lambda: program(state))
    with SimCluster(2, latency_s=0.005) as cluster:
        run = cluster.submit(program(state).graph(), resume=savepoint)
        assert run.wait(600), run._describe()
        assert 0 < run.snapshot().component("words").acked < TOTAL, "only the rest is emitted"
        (seen,) = run.results("sink")
        assert set(seen.values()) == {1}
        assert not run._env.transfer, "the packed states are removed"
    check(state, is_exact=True)


def test_a_topology_that_is_not_killed_after_its_savepoint_continues() -> None:
    state = MemoryState()
    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(program(state).graph())
        run.wait(0.5)
        run.keep()
        assert not run.wait(30)
        assert run.snapshot().state is State.REBALANCING
        assert run.wait(600), run._describe()
    check(state, is_exact=True)


class NoSnapshot(Bolt[Word, None]):
    """A bolt class without `snapshot`: it may have a state in memory."""

    def process(self, word: Word) -> None: ...


def test_a_topology_with_a_state_in_memory_without_a_snapshot_has_no_savepoint() -> None:
    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(program(MemoryState(), NoSnapshot()).graph())
        run.wait(0.5)
        with pytest.raises(LifecycleError, match="the state of sink is in memory"):
            run.keep()
        assert run.snapshot().state is State.ACTIVE


def numbers(parallelism: int = 1, sink: Any = Note) -> Topology:
    topology = Topology("words", workers=2)
    words = topology.spout("words", Words(), parallelism)
    words.shuffle().bolt("parse", parse).shuffle().bolt("sink", sink)
    return topology


class OtherNote(Note):
    """Another class with the same state."""


def other_name() -> Topology:
    topology = Topology("other")
    topology.spout("words", Words()).shuffle().bolt("sink", Note)
    return topology


def without_a_sink() -> Topology:
    topology = Topology("words")
    topology.spout("words", Words()).shuffle().bolt("parse", parse)
    return topology


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (other_name, "it is one of 'words'"),
        (without_a_sink, "it has 'sink', which the code does not have"),
        (lambda: numbers(parallelism=2), "'words' has 1 tasks in it, and 2 in the code"),
        (lambda: numbers(sink=OtherNote), "'sink' is another kind of component in the code"),
    ],
)
def test_code_that_does_not_fit_is_refused(other: Make, why: str) -> None:
    savepoint = savepoint_of(numbers)
    with SimCluster(2) as cluster, pytest.raises(LifecycleError, match=why):
        cluster.submit(other().graph(), resume=savepoint)


def totals(aggregator: Any) -> Topology:
    topology = Topology("words", workers=2)
    words = topology.spout("words", Words())
    words.group_by("text").aggregate(aggregator, name="totals")
    return topology


def test_a_state_of_another_operator_is_refused() -> None:
    savepoint = savepoint_of(lambda: totals(count()))
    with SimCluster(2) as cluster, pytest.raises(LifecycleError, match="differs in its operator"):
        cluster.submit(totals(max_("number")).graph(), resume=savepoint)


def test_new_components_may_be_added_and_functions_may_have_other_numbers_of_tasks() -> None:
    savepoint = savepoint_of(numbers)

    def more() -> Topology:
        topology = Topology("words", workers=3)
        parsed = topology.spout("words", Words()).shuffle().bolt("parse", parse, 3)
        parsed.shuffle().bolt("sink", Note)
        parsed.shuffle().bolt("second", Note)
        return topology

    with SimCluster(2, latency_s=0.005) as cluster:
        run = cluster.submit(more().graph(), resume=savepoint)
        assert run.wait(600), run._describe()
        ((seen,), (second,)) = run.results("sink"), run.results("second")
    assert set(seen) == set(range(TOTAL)) > set(second)


def take(record: KafkaRecord) -> None: ...


def reading(first: Where, deployment: str | None = None) -> Plan:
    topology = Topology("words")
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
    options = KafkaOptions(first=first)
    spout = KafkaSpout(settings, topics=["a"], options=options, deployment=deployment)
    topology.spout("in", spout).shuffle().bolt("sink", take)
    return make_plan(topology.graph())


def deployment_of(plan: Plan) -> str:
    code: Any = plan.graph.components["in"].implementation
    return str(code.deployment)


@pytest.mark.parametrize(
    "first", [StartPosition.EARLIEST, StartPosition.LATEST, StartPosition.STORM_FORCED]
)
def test_a_resumed_source_continues_at_its_offsets_wherever_a_first_run_begins(
    first: StartPosition,
) -> None:
    before, after = reading(first), reading(first)
    savepoint = read_again(Savepoint.of(before, MasterState()))
    resumed = savepoint.resumed(after)
    assert deployment_of(resumed) == deployment_of(before) != deployment_of(after)
    again = read_again(Savepoint.of(resumed, MasterState())).resumed(reading(first, "other"))
    assert deployment_of(again) == deployment_of(before)


def test_a_savepoint_of_an_earlier_release_without_deployments_is_read() -> None:
    plan = reading(StartPosition.EARLIEST)
    data = Savepoint.of(plan, MasterState()).to_bytes()
    content = versions.unstamp("words", data, versions.SAVEPOINT, "")[4:]
    values = msgpack.unpackb(content, strict_map_key=False)
    for component in values["components"].values():
        del component["deployment"]
    old = msgpack.packb(values)
    old = versions.stamp(versions.SAVEPOINT, crc32(old).to_bytes(4) + old)
    after = reading(StartPosition.EARLIEST)
    assert deployment_of(Savepoint.from_bytes("words", old).resumed(after)) == deployment_of(after)


def test_a_file_that_is_no_savepoint_is_refused() -> None:
    data = savepoint_of(numbers).to_bytes()
    for bad in (b"", data[:-1], data[:-1] + bytes([data[-1] ^ 1])):
        with pytest.raises(LifecycleError, match="words is not a valid savepoint"):
            Savepoint.from_bytes("words", bad)
    with pytest.raises(VersionMismatch, match="words has version 2"):
        Savepoint.from_bytes("words", data.replace(b"sunshower 1", b"sunshower 2", 1))


def test_a_kill_more_than_a_minute_after_the_savepoint_is_refused_once() -> None:
    state = MemoryState()
    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(program(state).graph())
        run.wait(0.5)
        run.keep()
        run.wait(61)
        with pytest.raises(
            LifecycleError, match="continued since its savepoint, which must not be"
        ):
            run.kill(0.0)
        assert run.wait(600), run._describe()
        assert run.kill(0.0).unsettled == 0
    check(state, is_exact=True)


def test_a_kill_after_a_savepoint_ends_the_topology_at_once() -> None:
    state = MemoryState()
    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(program(state, message_timeout_s=300.0).graph())
        run.wait(0.5)
        savepoint = read_again(run.keep(0.0))
        assert run.kill().seconds < 1.0
    with SimCluster(2, latency_s=0.005) as cluster:
        run = cluster.submit(program(state).graph(), resume=savepoint)
        assert run.wait(600), run._describe()
        (seen,) = run.results("sink")
    assert set(seen) == set(range(TOTAL))


def test_a_kill_of_another_client_after_a_savepoint_ends_the_topology() -> None:
    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(program(MemoryState(), message_timeout_s=300.0).graph())
        run.wait(0.5)
        acked = run.keep(0.0) and run.snapshot().component("words").acked
        run._ask(lambda master: master.apply(events.Kill(None)))
        assert run._ask(lambda master: master.state()) is State.KILLED
        assert run.snapshot().component("words").acked == acked


def test_a_savepoint_cannot_be_read_after_a_minute() -> None:
    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(program(MemoryState()).graph())
        run.wait(0.5)
        number = run._ask(lambda master: master.apply(events.Keep(None)))
        run.wait(65)
        with pytest.raises(LifecycleError, match="not ended within a minute: it has no savepoint"):
            run._ask(lambda master: master.savepoint(number))


def test_a_savepoint_that_a_later_change_has_replaced_is_refused() -> None:
    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(program(MemoryState(), message_timeout_s=300.0).graph())
        run.wait(0.5)
        number = run._ask(lambda master: master.apply(events.Keep(None)))
        run._ask(lambda master: master.apply(events.GoOn(number)))
        run.rebalance(workers=2)
        with pytest.raises(LifecycleError, match="has no savepoint: its savepoint was not stored"):
            run._ask(lambda master: master.savepoint(number))


@pytest.mark.parametrize("wait_s", [0.0, 0.3])
def test_a_topology_can_continue_at_once_after_its_savepoint(wait_s: float) -> None:
    state = MemoryState()
    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(program(state).graph())
        run.wait(0.5)
        run.keep(wait_s)
        assert run.go_on()
        assert run.wait(30), run._describe()
        (seen,) = run.results("sink")
    check(state, is_exact=False)
    assert set(seen) == set(range(TOTAL))


class Unpicklable(Note):
    """Its state is of a local class, which cannot be pickled."""

    def snapshot(self) -> Any:
        class Local:
            """A class of one call."""

        return Local()


def test_the_topology_continues_if_its_savepoint_cannot_be_pickled() -> None:
    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(program(MemoryState(), Unpicklable()).graph())
        run.wait(0.5)
        with pytest.raises(LifecycleError, match="'sink' cannot be kept: what its snapshot"):
            run.keep()
        run.wait(1.0)
        assert run.snapshot().state is State.ACTIVE


def test_an_open_task_whose_state_is_no_longer_stored_makes_no_savepoint() -> None:
    with SimCluster(1, latency_s=0.005) as cluster:
        run = cluster.submit(program(MemoryState()).graph())
        run.wait(0.5)
        number = run._ask(lambda master: master.apply(events.Keep(0.0)))
        while (packed := run._ask(lambda master: master.savepoint(number))) is None:
            run.wait(0.1)
        with pytest.raises(LifecycleError, match=r"what words\[0\], count\[0\], .* is no longer"):
            packed.with_transfers({}.get)


def restoring() -> Topology:
    topology = Topology("words", workers=2)
    words = topology.spout("words", Words())
    words.shuffle().bolt("parse", NeedsState, 2).shuffle().bolt("sink", Note)
    return topology


class NeedsState(Bolt[Word, Word]):
    """A bolt with a state, in place of a function."""

    def prepare(self, context: Context) -> None:
        self.times = 0

    def process(self, word: Word) -> Iterator[Word]:
        self.times += 1
        yield word

    def snapshot(self) -> int:
        return self.times

    def restore(self, state: int) -> None:
        self.times = state


def test_an_object_that_replaces_a_function_begins_without_a_state() -> None:
    savepoint = savepoint_of(numbers)
    with SimCluster(2, latency_s=0.005) as cluster:
        run = cluster.submit(restoring().graph(), resume=savepoint)
        assert run.wait(600), run._describe()
        (seen,) = run.results("sink")
    assert set(seen) == set(range(TOTAL))
