"""Tests of the event queue: events by time, and in drawn order at the same moment."""

from __future__ import annotations

from math import inf

from sunshower.simulation.network import World


def order(seed: int) -> list[str]:
    world, happened = World(seed), list[str]()
    for name in "abcdefgh":
        world.at(1.0, happened.append, name)
    world.run_until(1.0)
    return happened


def test_events_happen_in_the_order_of_their_times() -> None:
    world, happened = World(0), list[tuple[str, float]]()
    for name, at_s in (("late", 3.0), ("early", 1.0), ("never", 9.0)):
        world.at(at_s, lambda name=name: happened.append((name, world.now_s)))
    world.run_until(5.0)
    assert happened == [("early", 1.0), ("late", 3.0)]
    assert (world.now_s, world.next_s) == (5.0, 9.0)
    world.step()
    assert (world.now_s, world.next_s) == (9.0, inf)


def test_the_seed_draws_the_order_of_events_at_the_same_moment() -> None:
    orders = {tuple(order(seed)) for seed in range(20)}
    assert len(orders) > 15
    assert {tuple(sorted(events)) for events in orders} == {tuple("abcdefgh")}
    assert order(7) == order(7)


def test_an_event_may_cause_others_at_the_same_moment() -> None:
    world, happened = World(0), list[float]()
    world.at(2.0, lambda: world.after(0.0, lambda: happened.append(world.now_s)))
    world.run_until(2.0)
    assert happened == [2.0]


def test_durations_have_the_expected_average() -> None:
    world = World(3)
    drawn = [world.about(0.5) for _ in range(20_000)]
    assert min(drawn) >= 0
    assert max(drawn) > 3.0
    assert abs(sum(drawn) / len(drawn) - 0.5) < 0.02
    assert all(2 <= world.between(2, 3) < 3 for _ in range(100))
