"""Silent workers, the processes that replace them, and leases, at times that the test gives."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sunshower.runtime.control import events
from sunshower.runtime.control.events import Create, Welcome
from sunshower.runtime.control.failure_detector import FailureDetector, Lease
from sunshower.runtime.control.master import Master
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.plan import Layout, make_plan
from sunshower.runtime.worker import Worker
from sunshower.simulation.worker import SimWorker
from tests.runtime.control.test_flight_recorder import Automatic, Log, topology
from tests.runtime.network import Network

TIMEOUT_S = 20.0


def replaced(detector: FailureDetector, from_s: int, to_s: int) -> Iterator[int]:
    """The seconds at which worker 0, which has said hello, is replaced."""
    known = {0}
    for now in range(from_s, to_s):
        if detector.look([0], known, float(now)):
            known = set()
            yield now


def test_worker_is_replaced_once_it_was_silent_for_the_timeout() -> None:
    detector = FailureDetector(TIMEOUT_S, 0.0)
    for now in range(11):
        detector.look([0], {0}, float(now))
        detector.heard(0, float(now))
    assert list(replaced(detector, 11, 60)) == [30]


def test_short_timeout_is_kept_although_the_master_looks_every_second() -> None:
    assert list(replaced(FailureDetector(2.0, 0.0), 0, 30)) == [2]


def test_process_that_never_says_hello_is_replaced_after_longer_and_longer_waits() -> None:
    detector = FailureDetector(TIMEOUT_S, 0.0)
    assert list(replaced(detector, 0, 2_000)) == [20, 80, 200, 440, 920, 1520]
    assert detector.silent() == {0: 1_999.0}, "since when it is silent, not since its replacement"


def test_process_that_fails_at_its_start_is_created_again_with_a_back_off() -> None:
    detector = FailureDetector(TIMEOUT_S, 0.0)
    created = []
    for now in range(100):
        detector.look([0], {0} if now <= TIMEOUT_S else (), float(now))
        created += [now] * len(detector.to_create())
    assert created == [20, 21, 23, 27, 35, 51, 80, 81, 83, 87, 95]
    detector.heard(0, 100.0)
    assert not detector.to_create()


def test_no_worker_is_replaced_when_the_master_itself_was_stopped() -> None:
    detector = FailureDetector(TIMEOUT_S, 0.0)
    detector.look([0], {0}, 0.0)
    assert not detector.look([0], {0}, 500.0)
    assert not detector.silent()


def test_heartbeat_that_is_read_before_the_master_looks_again_counts_once() -> None:
    detector = FailureDetector(TIMEOUT_S, 0.0)
    detector.look([0], {0}, 0.0)
    detector.heard(0, 500.0)  # the master was stopped until now
    assert list(replaced(detector, 500, 560)) == [520]


def test_next_master_creates_the_workers_that_the_former_one_has_only_ended() -> None:
    plan = network().plan
    master = Master(plan, now=0.0)
    for worker in plan.workers:
        master.apply(events.Hello(worker), 0.0)
    for now in range(21):
        for worker in plan.workers[1:]:
            master.apply(events.Beat(worker, 1), float(now))
        master.apply(events.Watch(), float(now))
    following = Master(plan, MasterState.from_bytes(master.stored.to_bytes()), now=25.0)
    assert Create((plan.workers[0],)) in following.apply(events.MasterBegins(), 25.0).commands
    following.apply(events.Hello(plan.workers[0]), 26.0)
    _, commands = following.apply(events.Watch(), 60.0)
    assert not any(isinstance(command, Create) for command in commands)


def test_lease_holds_for_a_part_of_the_timeout_and_only_while_heartbeats_run() -> None:
    lease = Lease(TIMEOUT_S)
    assert lease.holds(1e9), "not judged before the first heartbeat"
    lease.renewed_s = lease.ticked_s = 100.0
    assert lease.holds(101.0)
    assert not lease.holds(104.0), "its thread has not run: the process was stopped"
    lease.ticked_s = 114.9
    assert lease.holds(114.9)
    lease.ticked_s = 115.0
    assert not lease.holds(115.0)


def test_time_without_a_lease_begins_with_its_end_and_not_before_the_process_continued() -> None:
    lease = Lease(TIMEOUT_S)
    assert lease.lapsed_for(1e9) == 0.0, "not judged before the first heartbeat"
    lease.renewed_s = 100.0
    assert lease.lapsed_for(114.0) == 0.0
    assert lease.lapsed_for(155.0) == 40.0
    lease.awake_s = 150.0
    assert lease.lapsed_for(155.0) == 5.0, "the rest is counted as the time in which it was stopped"


class Greeting(SimWorker):
    """A worker whose next life begins, on the other thread, while an answer is processed."""

    begins: Welcome | None = None

    @property
    def greeting(self) -> bool:
        if (welcome := self.begins) is not None:
            self.begins = None
            self.begin(welcome)
        return self._greets

    @greeting.setter
    def greeting(self, greets: bool) -> None:
        self._greets = greets


def network() -> Network:
    return Network(make_plan(topology(Automatic, Log()).graph(), Layout.ISOLATE))


def test_lease_begins_with_the_hello_although_no_heartbeat_is_ever_answered() -> None:
    net = network()
    node, timeout_s = net._env.network.there[1], net.plan.graph.config.worker_timeout_s
    assert isinstance(node, SimWorker)
    node.begin(net.sim._master.apply(events.Hello(1)), 100.0)
    assert node.lease.holds(101.0)
    assert not node.lease.holds(100.0 + timeout_s), "it is replaced now"
    node.beat_answered(node.life, 200.0, True, 200.0)
    node.begin(net.sim._master.apply(events.Hello(1)), 150.0)
    assert node.lease.holds(201.0)


def test_time_without_a_lease_counts_once_although_several_heartbeats_are_answered_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[float] = []
    monkeypatch.setattr(Worker, "stopped_for", lambda _, seconds: counted.append(seconds))
    net = network()
    node, timeout_s = net._env.network.there[1], net.plan.graph.config.worker_timeout_s
    assert isinstance(node, SimWorker)
    node.begin(net.sim._master.apply(events.Hello(1)), 100.0)
    ends_s = 100.0 + node.lease._lasts_s
    for sent_s in (101.0, 102.0, 103.0):  # a paused master answers all of them when it is resumed
        node.beat_answered(node.life, sent_s, True, ends_s + timeout_s)
    node.read_mail()
    assert counted == [timeout_s]
    node.beat_answered(node.life, ends_s + timeout_s, True, ends_s + timeout_s + 1.0)
    node.read_mail()
    assert counted == [timeout_s, 1.0], "the old answers have not renewed it"


def test_answer_about_the_former_life_does_not_end_the_next_one() -> None:
    net = network()
    node = Greeting(net._env, 1, "node-0", lambda _process: None)
    node.begin(net.sim._master.apply(events.Hello(1)))
    former, node.greeting = node.life, True
    node.begins = net.sim._master.apply(events.Hello(1))
    assert not node.beat_answered(former, 0.0, False, 0.0)
    assert node.life == former + 1
    assert node.beat_answered(node.life, 0.0, False, 0.0), "but an answer about this life does"
