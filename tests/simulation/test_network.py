"""Tests of the simulated network: the order of calls, and what is lost when a process dies."""

from __future__ import annotations

import pytest

from sunshower.errors import ConfigError
from sunshower.runtime.transport.packets import Answer
from sunshower.simulation.cluster import SimCluster
from sunshower.simulation.network import Network, SimPacket, SimProcess
from sunshower.simulation.world import SimConditions, World
from tests.seeds import seeds

CONDITIONS = SimConditions(latency_s=0.01, call_s=0.001)


class Ear(SimProcess):
    """Records the calls that it receives, and their times."""

    def __init__(self, world: World, address: int) -> None:
        super().__init__(world, CONDITIONS, address, "node-0")
        self.world = world
        self.heard: list[tuple[str, int]] = []
        self.times: list[float] = []

    def hear(self, who: str, number: int) -> None:
        self.heard.append((who, number))
        self.times.append(self.world.now_s)


class Place:
    """A network with two senders and a receiver."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.network = Network(self.world, CONDITIONS)
        self.a, self.b, self.ear = (Ear(self.world, address) for address in range(3))
        for process in (self.a, self.b, self.ear):
            self.network.enter(process)

    def bury(self, process: SimProcess) -> None:
        del self.network.there[process.address]
        process.die()


def numbers(place: Place, who: str) -> list[int]:
    return [number for name, number in place.ear.heard if name == who]


def test_calls_of_one_sender_arrive_in_order_and_those_of_two_in_any() -> None:
    interleavings = set()
    for seed in range(20):
        place = Place(seed)
        for number in range(10):
            place.network.call(place.a, 2, "hear", "a", number)
            place.network.call(place.b, 2, "hear", "b", number)
        place.world.run_until(1.0)
        assert numbers(place, "a") == numbers(place, "b") == list(range(10)), f"seed {seed}"
        assert place.ear.times == sorted(place.ear.times)
        interleavings.add(tuple(who for who, _ in place.ear.heard))
    assert len(interleavings) > 10


def test_one_that_is_held_up_is_overtaken() -> None:
    place = Place(0)
    place.network.call(place.a, 2, "hear", "a", 1, late_s=5.0)
    place.network.call(place.a, 2, "hear", "a", 2)
    place.world.run_until(10.0)
    assert numbers(place, "a") == [2, 1]
    assert place.ear.times[1] > 5.0


def test_a_paused_process_hears_all_when_it_goes_on_in_order() -> None:
    place = Place(0)
    place.ear.pause()
    for number in range(5):
        place.network.call(place.a, 2, "hear", "a", number)
    place.world.run_until(3.0)
    assert place.ear.heard == []
    place.ear.resume()
    assert numbers(place, "a") == list(range(5))
    assert set(place.ear.times) == {3.0}


def test_a_call_to_somebody_who_is_not_there_fails() -> None:
    place, failed = Place(0), list[int]()
    place.bury(place.ear)
    place.network.call(place.a, 2, "hear", "a", 1, failed=lambda: failed.append(1))
    place.network.call(place.a, 2, "hear", "a", 2)  # without a callback for failures
    place.world.run_until(1.0)
    assert failed == [1]
    assert place.ear.heard == []


def test_what_a_paused_process_has_not_heard_fails_with_its_death() -> None:
    place, failed = Place(0), list[int]()
    place.ear.pause()
    place.network.call(place.a, 2, "hear", "a", 1, failed=lambda: failed.append(1))
    place.world.run_until(1.0)
    assert failed == []
    place.bury(place.ear)
    assert failed == [1]


def test_of_what_a_dead_process_has_just_sent_the_last_may_be_lost() -> None:
    arrived = []
    for seed in range(100):
        place = Place(seed)
        for number in range(10):
            place.world.run_until(number * 0.002)
            place.network.call(place.a, 2, "hear", "a", number)
        place.bury(place.a)
        place.world.run_until(1.0)
        got = numbers(place, "a")
        assert got == list(range(len(got))), f"seed {seed}: something in the middle was lost"
        arrived.append(len(got))
    assert max(arrived) == 10
    assert min(arrived) < 5


def test_what_had_not_left_before_the_death_never_leaves() -> None:
    for seed in range(20):
        place = Place(seed)
        place.network.call(place.a, 2, "hear", "a", 1, left_s=0.5)
        place.world.run_until(0.1)
        place.bury(place.a)
        place.world.run_until(5.0)
        assert place.ear.heard == []


def test_an_answer_is_lost_at_most_with_the_death_of_who_gave_it() -> None:
    outcomes = set()
    for seed in range(50):
        place, heard = Place(seed), list[str | None]()
        place.network.answer(place.ear, place.a, heard.append, "yes")
        place.bury(place.ear)
        place.world.run_until(2.0)
        outcomes.add(tuple(heard))
    assert outcomes == {("yes",), (None,)}


def test_who_waits_for_somebody_is_told_when_he_is_there() -> None:
    place, told = Place(0), list[str]()
    place.network.when_there(2, lambda: told.append("at once"))
    place.bury(place.ear)
    place.network.when_there(2, lambda: told.append("later"))
    assert told == ["at once"]
    place.network.enter(Ear(place.world, 2))
    assert told == ["at once", "later"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"nodes": 0}, "nodes is 0"),
        ({"drift": 1.0}, "drift is 1.0"),
        ({"latency_s": 0.0}, "latency_s is 0.0"),
        ({"call_s": float("inf")}, "call_s is inf"),
    ],
)
def test_conditions_that_cannot_be_are_refused(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        SimCluster(0, **wrong)  # type: ignore[arg-type]


def test_each_seed_draws_its_own_conditions() -> None:
    drawn = [SimCluster(seed)._conditions for seed in range(30)]
    assert len({one.latency_s for one in drawn}) == 30
    assert max(one.latency_s for one in drawn) > 20 * min(one.latency_s for one in drawn)
    assert SimCluster(3)._conditions == SimCluster(3)._conditions


def test_machines_and_clocks_are_drawn_for_those_who_leave_them_open() -> None:
    drawn = [SimCluster(seed, nodes=None, drift=None)._conditions for seed in range(30)]
    assert {one.nodes for one in drawn} == {1, 2, 3}
    assert max(one.drift for one in drawn) > 20 * min(one.drift for one in drawn)
    for seed, one in enumerate(drawn):
        told = SimCluster(seed, nodes=one.nodes, drift=one.drift)._conditions
        assert told == one, "the other conditions are drawn as before"


@seeds(20)
def test_of_a_packet_that_comes_twice_the_first_answer_counts(seed: int) -> None:
    place, heard = Place(seed), list[Answer | None]()
    packet = SimPacket(place.network, place.a, 2, b"", heard.append, heard=True)
    packet.answer(place.ear, Answer.ACCEPTED)
    packet.answer(place.ear, Answer.REFUSED)
    packet.fail()
    place.world.run_until(5.0)
    assert heard == [Answer.ACCEPTED]


def test_an_answer_that_does_not_find_its_way_back_is_none() -> None:
    place, heard = Place(0), list[Answer | None]()
    packet = SimPacket(place.network, place.a, 2, b"", heard.append, heard=False)
    packet.answer(place.ear, Answer.ACCEPTED)
    place.world.run_until(5.0)
    assert heard == [None]
