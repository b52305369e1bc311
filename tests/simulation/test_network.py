"""Tests of the simulated network: the order of calls, and what is lost when a process dies."""

from __future__ import annotations

import pytest

from sunshower.errors import ConfigError
from sunshower.runtime.transport.packets import Answer
from sunshower.simulation.cluster import SimCluster
from sunshower.simulation.network import Network, SimConditions, SimPacket, SimProcess, World
from tests.seeds import seeds

CONDITIONS = SimConditions(latency_s=0.01, call_s=0.001)


class Receiver(SimProcess):
    """Records the calls that it receives, and their times."""

    def __init__(self, world: World, address: int) -> None:
        super().__init__(world, CONDITIONS, address, "node-0")
        self.world = world
        self.received: list[tuple[str, int]] = []
        self.times: list[float] = []

    def receive(self, sender: str, number: int) -> None:
        self.received.append((sender, number))
        self.times.append(self.world.now_s)


class Setup:
    """A network with two senders and a receiver."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.network = Network(self.world, CONDITIONS)
        self.a, self.b, self.receiver = (Receiver(self.world, address) for address in range(3))
        for process in (self.a, self.b, self.receiver):
            self.network.enter(process)

    def kill(self, process: SimProcess) -> None:
        del self.network.there[process.address]
        process.die()


def numbers(setup: Setup, sender: str) -> list[int]:
    return [number for name, number in setup.receiver.received if name == sender]


def test_calls_of_one_sender_arrive_in_order_and_calls_of_two_in_any_order() -> None:
    interleavings = set()
    for seed in range(20):
        setup = Setup(seed)
        for number in range(10):
            setup.network.call(setup.a, 2, "receive", "a", number)
            setup.network.call(setup.b, 2, "receive", "b", number)
        setup.world.run_until(1.0)
        assert numbers(setup, "a") == numbers(setup, "b") == list(range(10)), f"seed {seed}"
        assert setup.receiver.times == sorted(setup.receiver.times)
        interleavings.add(tuple(sender for sender, _ in setup.receiver.received))
    assert len(interleavings) > 10


def test_a_delayed_call_is_overtaken() -> None:
    setup = Setup(0)
    setup.network.call(setup.a, 2, "receive", "a", 1, late_s=5.0)
    setup.network.call(setup.a, 2, "receive", "a", 2)
    setup.world.run_until(10.0)
    assert numbers(setup, "a") == [2, 1]
    assert setup.receiver.times[1] > 5.0


def test_a_paused_process_receives_all_calls_in_order_when_it_continues() -> None:
    setup = Setup(0)
    setup.receiver.pause()
    for number in range(5):
        setup.network.call(setup.a, 2, "receive", "a", number)
    setup.world.run_until(3.0)
    assert setup.receiver.received == []
    setup.receiver.resume()
    assert numbers(setup, "a") == list(range(5))
    assert set(setup.receiver.times) == {3.0}


def test_a_call_to_a_dead_process_fails() -> None:
    setup, failed = Setup(0), list[int]()
    setup.kill(setup.receiver)
    setup.network.call(setup.a, 2, "receive", "a", 1, failed=lambda: failed.append(1))
    setup.network.call(setup.a, 2, "receive", "a", 2)  # without a callback for failures
    setup.world.run_until(1.0)
    assert failed == [1]
    assert setup.receiver.received == []


def test_calls_to_a_paused_process_fail_when_it_dies() -> None:
    setup, failed = Setup(0), list[int]()
    setup.receiver.pause()
    setup.network.call(setup.a, 2, "receive", "a", 1, failed=lambda: failed.append(1))
    setup.world.run_until(1.0)
    assert failed == []
    setup.kill(setup.receiver)
    assert failed == [1]


def test_the_last_calls_of_a_dead_process_may_be_lost() -> None:
    arrived = []
    for seed in range(100):
        setup = Setup(seed)
        for number in range(10):
            setup.world.run_until(number * 0.002)
            setup.network.call(setup.a, 2, "receive", "a", number)
        setup.kill(setup.a)
        setup.world.run_until(1.0)
        received = numbers(setup, "a")
        assert received == list(range(len(received))), f"seed {seed}: a call in between was lost"
        arrived.append(len(received))
    assert max(arrived) == 10
    assert min(arrived) < 5


def test_calls_that_had_not_left_before_the_death_are_not_sent() -> None:
    for seed in range(20):
        setup = Setup(seed)
        setup.network.call(setup.a, 2, "receive", "a", 1, left_s=0.5)
        setup.world.run_until(0.1)
        setup.kill(setup.a)
        setup.world.run_until(5.0)
        assert setup.receiver.received == []


def test_an_answer_may_be_lost_only_if_its_sender_dies() -> None:
    outcomes = set()
    for seed in range(50):
        setup, answers = Setup(seed), list[str | None]()
        setup.network.answer(setup.receiver, setup.a, answers.append, "yes")
        setup.kill(setup.receiver)
        setup.world.run_until(2.0)
        outcomes.add(tuple(answers))
    assert outcomes == {("yes",), (None,)}


def test_a_callback_for_a_process_is_called_once_it_is_there() -> None:
    setup, called = Setup(0), list[str]()
    setup.network.when_there(2, lambda: called.append("at once"))
    setup.kill(setup.receiver)
    setup.network.when_there(2, lambda: called.append("later"))
    assert called == ["at once"]
    setup.network.enter(Receiver(setup.world, 2))
    assert called == ["at once", "later"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"nodes": 0}, "nodes is 0"),
        ({"drift": 1.0}, "drift is 1.0"),
        ({"latency_s": 0.0}, "latency_s is 0.0"),
        ({"call_s": float("inf")}, "call_s is inf"),
    ],
)
def test_impossible_conditions_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SimCluster(0, **wrong)  # type: ignore[arg-type]


def test_each_seed_draws_its_own_conditions() -> None:
    drawn = [SimCluster(seed)._conditions for seed in range(30)]
    assert len({conditions.latency_s for conditions in drawn}) == 30
    assert max(conditions.latency_s for conditions in drawn) > 20 * min(
        conditions.latency_s for conditions in drawn
    )
    assert SimCluster(3)._conditions == SimCluster(3)._conditions


def test_nodes_and_drift_are_drawn_if_they_are_not_given() -> None:
    drawn = [SimCluster(seed, nodes=None, drift=None)._conditions for seed in range(30)]
    assert {conditions.nodes for conditions in drawn} == {1, 2, 3}
    assert max(conditions.drift for conditions in drawn) > 20 * min(
        conditions.drift for conditions in drawn
    )
    for seed, expected in enumerate(drawn):
        repeated = SimCluster(seed, nodes=expected.nodes, drift=expected.drift)._conditions
        assert repeated == expected, "the other conditions are drawn as before"


@seeds(20)
def test_of_a_repeated_packet_the_first_answer_counts(seed: int) -> None:
    setup, answers = Setup(seed), list[Answer | None]()
    packet = SimPacket(setup.network, setup.a, 2, b"", answers.append, heard=True)
    packet.answer(setup.receiver, Answer.ACCEPTED)
    packet.answer(setup.receiver, Answer.REFUSED)
    packet.fail()
    setup.world.run_until(5.0)
    assert answers == [Answer.ACCEPTED]


def test_a_lost_answer_is_none() -> None:
    setup, answers = Setup(0), list[Answer | None]()
    packet = SimPacket(setup.network, setup.a, 2, b"", answers.append, heard=False)
    packet.answer(setup.receiver, Answer.ACCEPTED)
    setup.world.run_until(5.0)
    assert answers == [None]
