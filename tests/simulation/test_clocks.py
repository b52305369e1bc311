"""Tests of the clocks of simulated processes: they drift, and never go back."""

from __future__ import annotations

from sunshower.simulation.cluster import SimCluster
from sunshower.simulation.network import HistoryClock, ProcessClock, World
from tests.simulation.probes import ClockReadings, time_readers


def test_clocks_differ_in_time_and_speed() -> None:
    world = World(1)
    clocks = [ProcessClock(world, 0.01) for _ in range(50)]
    begun_s = [clock.now() for clock in clocks]
    assert max(begun_s) - min(begun_s) > 1_000
    world.run_until(100.0)
    passed_s = [clock.now() - begun for clock, begun in zip(clocks, begun_s, strict=True)]
    assert 99.0 <= min(passed_s) < 99.5
    assert 100.5 < max(passed_s) <= 101.0
    for clock, passed in zip(clocks, passed_s, strict=True):
        assert abs(clock.in_world_s(passed) - 100.0) < 1e-6


def test_without_drift_all_run_alike() -> None:
    world = World(1)
    clock = ProcessClock(world, 0.0)
    begun_s = clock.now()
    world.run_until(10.0)
    assert abs(clock.now() - begun_s - 10.0) < 1e-9


def test_a_working_process_is_ahead_of_the_world_and_its_history_has_its_own_time() -> None:
    world = World(1)
    clock = ProcessClock(world, 0.01)
    history = HistoryClock(world, clock)
    before = clock.now()
    clock.sleep(2.0)
    assert abs(clock.now() - before - 2.0) < 1e-6
    assert world.now_s == 0.0
    assert 1.97 < history.now() < 2.03


def test_user_code_never_sees_its_clock_go_back() -> None:
    for seed in range(5):
        readings = ClockReadings()
        with SimCluster(seed) as cluster:
            run = cluster.submit(time_readers(readings).graph())
            assert run.wait(60.0)
        assert len(readings.seen) > 1
        for times in readings.seen.values():
            assert times == sorted(times), f"seed {seed}"
