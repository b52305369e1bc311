"""Tests of requests: each is answered with all rows of one attempt, or fails with an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any, ClassVar, NamedTuple

import pytest

from sunshower import (
    Bolt,
    Collector,
    Counter,
    KeyState,
    Number,
    Records,
    Retry,
    Topology,
    Tuple,
    Unavailable,
    run_inline,
)
from sunshower.clock import ManualClock
from sunshower.errors import (
    ClusterError,
    RequestFailed,
    RequestRefused,
    RequestTimeout,
    TopologyError,
    UnknownComponent,
)
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCaller, SimCluster, SimRun
from sunshower.simulation.worker import Killed
from tests.seeds import seeds

PARTS = 12


class Ask(NamedTuple):
    number: int


class Part(NamedTuple):
    number: int
    part: int


def split(ask: Ask) -> Iterator[Part]:
    for part in range(PARTS):
        yield Part(ask.number, part)


def double(part: Part) -> Iterator[Part]:
    if part.number < 0:
        raise ValueError(f"no {part.number}")
    yield Part(part.number, part.part * 2)


class NeverAcks(Bolt[Ask, Ask]):
    """Acks nothing."""

    def execute(self, tuple: Tuple[Ask], out: Collector[Ask]) -> None: ...


def answer_to(number: int) -> list[Part]:
    return [Part(number, part * 2) for part in range(PARTS)]


def declared(workers: int = 3, **settings: Any) -> Topology:
    """With three workers the parts of a request go through all of them, beside another stream."""
    topology = Topology("parts", workers=workers)
    asks = topology.requests("asks", Ask, **settings)
    parts = asks.flat_map(split).shuffle().bolt("double", double, parallelism=3)
    parts.answer()
    topology.spout("numbers", Counter(500)).shuffle().bolt("ignore", ignore, parallelism=2)
    return topology


def ignore(number: Number) -> None: ...


@pytest.fixture
def cluster() -> Iterator[SimCluster]:
    with SimCluster(seed=1, latency_s=0.001, check=True) as cluster:
        yield cluster


def results_of(run: SimRun, callers: list[SimCaller]) -> list[Any]:
    """The sorted answer or the error of each caller."""
    while not all(caller.has_ended for caller in callers):
        run.wait(0.1)
    results: list[Any] = []
    for caller in callers:
        try:
            results.append(sorted(caller.result))
        except (RequestFailed, RequestTimeout, RequestRefused) as error:
            results.append(error)
    return results


@pytest.mark.parametrize("layout", list(Layout))
def test_each_of_many_callers_gets_the_rows_of_its_own_request(
    cluster: SimCluster, layout: Layout
) -> None:
    run = cluster.submit(declared().graph(), layout)
    callers = [run.send("asks", Ask(number)) for number in range(100)]
    assert results_of(run, callers) == [answer_to(number) for number in range(100)]
    assert sorted(run.ask("asks", {"number": 7})) == answer_to(7)
    assert sorted(run.ask("asks", 8)) == answer_to(8)
    run.wait(1)
    asks = run.snapshot().component("asks")
    assert (asks.acked, asks.pending, asks.failed) == (102, 0, 0)


@seeds(60)
def test_a_request_is_answered_completely_and_once_or_fails_while_workers_die(seed: int) -> None:
    draw = Random(seed)
    layout = draw.choice(list(Layout))
    with SimCluster(seed, latency_s=0.003, check=True) as cluster:
        run = cluster.submit(declared(retry=Retry(attempts=3)).graph(), layout)
        callers = []
        for number in range(40):
            callers.append(run.send("asks", number, timeout_s=60.0))
            run.wait(draw.uniform(0, 0.02))
            if draw.random() < 0.15:
                with suppress(ClusterError):  # it is dead already
                    run.kill_worker(draw.choice(run.plan.workers))
            if draw.random() < 0.03:
                with suppress(ClusterError):
                    run.kill_master()
        assert results_of(run, callers) == [answer_to(number) for number in range(40)]


@seeds(20)
def test_requests_are_answered_while_tasks_move(seed: int) -> None:
    draw = Random(seed)
    with SimCluster(seed, latency_s=0.003, check=True) as cluster:
        run = cluster.submit(declared().graph())
        callers = []
        for _ in range(4):
            callers += [run.send("asks", number, timeout_s=60.0) for number in range(20)]
            run.wait(draw.uniform(0, 0.05))
            run.rebalance(workers=draw.randrange(1, 6), wait_s=draw.choice([0.0, 5.0]))
            workers_near = {
                run.plan.tasks_of(component)[0].worker for component in ("asks", "asks-answers")
            }
            assert len(workers_near) == 1
        assert results_of(run, callers) == [answer_to(number) for number in range(20)] * 4


def test_the_caller_gets_a_failure_with_its_cause_and_place(cluster: SimCluster) -> None:
    run = cluster.submit(declared().graph())
    assert sorted(run.ask("asks", 1)) == answer_to(1)
    with pytest.raises(RequestFailed, match=r"'asks' failed: exception in double.*no -1") as raised:
        run.ask("asks", -1)
    assert "raise ValueError" in str(raised.value)
    assert sorted(run.ask("asks", 2)) == answer_to(2)
    run.wait(1)
    assert run.snapshot().component("asks").failed == 1


class Flaky(Bolt[Part, Part]):
    """Fails the middle part of a request twice."""

    def prepare(self, context: Any) -> None:
        self.left = 2

    def process(self, part: Part) -> Iterator[Part]:
        if part.part == PARTS // 2 and self.left:
            self.left -= 1
            raise ValueError
        yield Part(part.number, part.part * 2)


@pytest.mark.parametrize("attempts", [2, 3])
def test_retry_sets_the_attempts_and_the_answer_has_rows_of_one_attempt_only(
    cluster: SimCluster, attempts: int
) -> None:
    topology = Topology("flaky")
    asks = topology.requests("asks", Ask, retry=Retry(attempts=attempts))
    asks.flat_map(split).shuffle().bolt("flaky", Flaky).answer()
    run = cluster.submit(topology.graph())
    results = results_of(run, [run.send("asks", 1)])
    assert results == [answer_to(1)] if attempts == 3 else isinstance(results[0], RequestFailed)


class UnavailableAtFirst(Bolt[Ask, Ask]):
    """Its dependency is unavailable for two seconds."""

    def prepare(self, context: Any) -> None:
        self.clock = context.clock
        self.back_s = self.clock.now() + 2

    def process(self, ask: Ask) -> Iterator[Ask]:
        if self.clock.now() < self.back_s:
            raise Unavailable("away")
        yield ask


def test_a_request_waits_for_an_outage_until_its_caller_gives_up(cluster: SimCluster) -> None:
    topology = Topology("outage")
    topology.requests("asks", Ask).shuffle().bolt("away", UnavailableAtFirst).answer()
    run = cluster.submit(topology.graph())
    first, second = run.send("asks", 1, timeout_s=0.5), run.send("asks", 2, timeout_s=20)
    error, answer = results_of(run, [first, second])
    assert isinstance(error, RequestTimeout)
    assert "within 0.5 s: its tuple tree is not complete" in str(error)
    assert answer == [Ask(2)]
    run.wait(5)
    asks = run.snapshot().component("asks")
    assert (asks.acked, asks.pending) == (1, 0)  # the first was given up with its caller


class Kills(Bolt[Ask, Ask]):
    def process(self, ask: Ask) -> Iterator[Ask]:
        if ask.number == 13:
            raise Killed
        yield ask


def test_a_request_that_kills_its_process_fails_and_the_others_do_not() -> None:
    topology = Topology("kills", workers=2)
    topology.requests("asks", Ask).shuffle().bolt("kills", Kills, parallelism=2).answer()
    with SimCluster(1, latency_s=0.001) as cluster:
        run = cluster.submit(topology.graph(), Layout.ISOLATE)
        callers = [run.send("asks", number, timeout_s=60.0) for number in range(20)]
        results = results_of(run, callers)
    error = results.pop(13)
    assert isinstance(error, RequestFailed)
    assert "actor died in kills" in str(error)
    assert results == [[Ask(number)] for number in range(20) if number != 13]


class WritesTogether(Bolt[Ask, Ask]):
    """Writes a batch at once, which one of its records prevents."""

    batches: ClassVar[list[list[int]]] = []

    def prepare(self, context: Any) -> None:
        self.batch: list[int] = []

    def process(self, ask: Ask) -> Iterator[Ask]:
        self.batch.append(ask.number)
        yield ask

    def flush(self) -> None:
        batch, self.batch = self.batch, []
        self.batches.append(batch)
        if 13 in batch:
            raise ValueError("13")


@pytest.mark.parametrize("layout", list(Layout))
def test_requests_that_wait_together_are_one_batch_and_none_fails_with_another(
    layout: Layout,
) -> None:
    WritesTogether.batches = []
    topology = Topology("writes", workers=2)
    topology.requests("asks", Ask).shuffle().bolt("writes", WritesTogether).answer()
    with SimCluster(1, latency_s=0.001) as cluster:
        run = cluster.submit(topology.graph(), layout)
        run.deactivate()
        callers = [run.send("asks", number) for number in range(20)]
        run.wait(0.5)
        run.activate()
        results = results_of(run, callers)
    error = results.pop(13)
    assert isinstance(error, RequestFailed)
    assert "exception in writes" in str(error)
    assert results == [[Ask(number)] for number in range(20) if number != 13]
    assert max(map(len, WritesTogether.batches)) > 5
    assert [13] in WritesTogether.batches


class EmitsOnly(Bolt[Ask, Ask]):
    """Emits, and neither acks nor fails."""

    def execute(self, tuple: Tuple[Ask], out: Collector[Ask]) -> None:
        out.emit(tuple.record, tuple)


def test_an_answer_is_not_given_before_its_tree_is_complete(cluster: SimCluster) -> None:
    topology = Topology("never")
    topology.requests("asks", Ask, message_timeout_s=3).shuffle().bolt("never", EmitsOnly).answer()
    run = cluster.submit(topology.graph())
    with pytest.raises(RequestFailed, match="failed: timeout"):
        run.ask("asks", 1)


def test_beyond_pending_max_requests_are_refused(cluster: SimCluster) -> None:
    topology = Topology("never")
    topology.requests("asks", Ask, pending_max=3).shuffle().bolt("never", EmitsOnly).answer()
    run = cluster.submit(topology.graph())
    results = results_of(run, [run.send("asks", number, timeout_s=2.0) for number in range(5)])
    assert sorted(type(result).__name__ for result in results) == [
        *["RequestRefused"] * 2,
        *["RequestTimeout"] * 3,
    ]
    with pytest.raises(RequestTimeout):  # those whose callers have given up do not count
        run.ask("asks", 6, timeout_s=1.0)


def test_wrong_requests_are_refused(cluster: SimCluster) -> None:
    run = cluster.submit(declared().graph())
    for value in ({"numer": 1}, {"number": 1, "part": 2}, Part(1, 2), {}):
        with pytest.raises(RequestRefused, match=r"'asks' is Ask\(number\), and this is"):
            run.ask("asks", value)
    with pytest.raises(UnknownComponent, match="takes no requests 'double'; it takes: asks"):
        run.ask("double", 1)


def test_a_drain_finishes_emitted_requests_and_refuses_the_others(cluster: SimCluster) -> None:
    run = cluster.submit(declared().graph())
    callers = [run.send("asks", number, timeout_s=5.0) for number in range(5)]
    run.wait(0.004)
    run.drain()
    run.wait(0.1)  # until the workers drain
    late = run.send("asks", 9, timeout_s=5.0)
    for number, result in enumerate(results_of(run, callers)):
        assert isinstance(result, RequestRefused) or result == answer_to(number)
    assert isinstance(results_of(run, [late])[0], RequestRefused)
    assert run.wait(30)


def test_a_restarted_worker_of_a_draining_topology_refuses_requests() -> None:
    topology = Topology("drained", workers=2)
    topology.requests("asks", Ask).shuffle().bolt("held", NeverAcks).answer()
    with SimCluster(seed=3) as cluster:
        run = cluster.submit(topology.graph())
        run.send("asks", 1, timeout_s=60.0)
        run.wait(0.5)
        run.drain()
        run.kill_worker(run.plan.tasks_of("asks")[0].worker)
        run.wait(1.5)
        with pytest.raises(RequestRefused):
            run.ask("asks", 2, timeout_s=5.0)


def test_a_stopped_topology_refuses_requests(cluster: SimCluster) -> None:
    run = cluster.submit(declared().graph())
    run.stop()
    with pytest.raises(ClusterError, match="was stopped"):
        run.ask("asks", 1)


class Count(Bolt[Any, Part]):
    """Counts each number; emits its count for every record, also for those of the stream."""

    def prepare(self, context: Any) -> None:
        self.seen: dict[int, int] = {}

    def process(self, record: Any) -> Iterator[Part]:
        if isinstance(record, Number):
            self.seen[record.value] = self.seen.get(record.value, 0) + 1
        yield Part(getattr(record, "number", -1), self.seen.get(getattr(record, "number", -1), 0))


def test_rows_that_no_request_has_caused_are_dropped() -> None:
    topology = Topology("lookup")
    numbers = topology.spout("numbers", Records([Number(n % 3) for n in range(9)], type=Number))
    asks = topology.requests("asks", Ask)
    inputs = [numbers.fields("value"), asks.fields("number")]
    counts = topology.bolt("counts", Count, inputs, 2)
    counts.answer()
    with SimCluster(1) as cluster:
        run = cluster.submit(topology.graph())
        while run.snapshot().component("numbers").acked < 9:
            run.wait(0.1)
        assert [run.ask("asks", number) for number in (0, 2, 5)] == [
            [Part(0, 3)],
            [Part(2, 3)],
            [Part(5, 0)],
        ]


def test_rows_of_several_branches_are_one_answer_and_no_rows_are_an_empty_answer() -> None:
    def keep(ask: Ask, state: KeyState[int]) -> Iterator[Part]:
        state.value = (state.value or 0) + 1
        yield Part(ask.number, state.value)

    topology = Topology("branches", workers=2)
    asks = topology.requests("asks", Ask)
    small, large = asks.map(lambda ask: ask, fields=Ask).branch(lambda ask: ask.number < 10)
    small.answer()
    large.flat_map(lambda _: [], fields=Ask).answer()
    asks.filter(lambda ask: ask.number < 10).group_by("number").process(keep).answer()
    with SimCluster(2) as cluster:
        run = cluster.submit(topology.graph())
        assert results_of(run, [run.send("asks", n) for n in (1, 11, 2)]) == [
            [Ask(1), Part(1, 1)],
            [],
            [Ask(2), Part(2, 1)],
        ]


def test_in_one_process_requests_are_given_and_the_run_ends() -> None:
    graph = declared(1).graph()
    assert run_inline(graph, clock=ManualClock()).answers == {}
    done = run_inline(graph, clock=ManualClock(), requests={"asks": [Ask(1), {"number": 2}, 3]})
    assert [sorted(rows) for rows in done.answers["asks"]] == [answer_to(n) for n in (1, 2, 3)]
    many = run_inline(declared(1, pending_max=3).graph(), requests={"asks": range(10)})
    assert [sorted(rows) for rows in many.answers["asks"]] == [answer_to(n) for n in range(10)]
    with pytest.raises(RequestRefused, match="'wrong'"):
        run_inline(declared(1, pending_max=1).graph(), requests={"asks": [1, {"wrong": 2}, 3]})
    with pytest.raises(RequestFailed, match="no -1"):
        run_inline(graph, clock=ManualClock(), requests={"asks": [1, -1]})
    with pytest.raises(UnknownComponent, match="it takes: asks"):
        run_inline(graph, requests={"double": [1]})


def test_declarations_that_cannot_work_are_refused() -> None:
    topology = Topology("refused")
    numbers = topology.spout("numbers", Counter(1))
    with pytest.raises(TopologyError, match="answer: no request leads there"):
        numbers.answer()
    asks = topology.requests("asks", ["number"])
    with pytest.raises(TopologyError, match="requests 'asks': they have no answers"):
        topology.graph()
    asks.answer()
    topology.graph()
    for wrong in (Retry(dead_letters=True), 3):
        with pytest.raises(TopologyError, match="without dead_letters"):
            topology.requests("more", Ask, retry=wrong)  # type: ignore[arg-type]
    untracked = Topology("untracked", ackers=0)
    untracked.requests("asks", Ask).answer()
    with pytest.raises(TopologyError, match="must be tracked"):
        untracked.graph()
