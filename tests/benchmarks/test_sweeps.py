"""Parts of `benchmarks/sweeps` without Ray: open loop, shared runs, recovery, and the model."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

from benchmarks.endurance.deliveries import NEVER, DeliveryTimes
from benchmarks.measure import Sample
from benchmarks.sweeps import model
from benchmarks.sweeps.costs import Costs, costs_of
from benchmarks.sweeps.model import Load
from benchmarks.sweeps.open_loop import (
    GAP_S,
    Step,
    due_times,
    flat_due_times,
    latencies_ms,
    percentile,
)
from benchmarks.sweeps.recovery import first_ack_s
from benchmarks.sweeps.shared_run import SharedRun

STEPS = (Step(rate=2, count=2), Step(rate=10, count=3))

# ---- the open loop ------------------------------------------------------------------------------


def test_records_are_due_at_the_rate_of_their_step() -> None:
    first, second = due_times(STEPS)
    assert first == [0.0, 0.5]
    assert second == pytest.approx([1.0 + GAP_S, 1.1 + GAP_S, 1.2 + GAP_S])
    assert flat_due_times(STEPS) == [*first, *second]


def test_a_latency_begins_when_the_record_is_due_and_not_when_it_was_emitted() -> None:
    start_s = 50.0
    done_s = [start_s + due_s + 0.004 for due_s in flat_due_times(STEPS)]
    done_s[1] = start_s + 0.9  # due at 0.5: a delay of the source is part of the latency
    first, second = latencies_ms(STEPS, done_s, start_s)
    assert first == pytest.approx([4.0, 400.0])
    assert second == pytest.approx([4.0, 4.0, 4.0])


@pytest.mark.parametrize(
    ("count", "percent", "expected"),
    [
        (1, 50, 1),
        (1, 99, 1),
        (10, 50, 5),
        (10, 99, 10),
        (100, 50, 50),
        (100, 99, 99),
        (200, 99, 198),
    ],
)
def test_a_percentile_is_the_value_of_the_nearest_rank(
    count: int, percent: float, expected: int
) -> None:
    assert percentile([float(value) for value in range(count, 0, -1)], percent) == expected


def test_a_percentile_needs_values() -> None:
    with pytest.raises(ValueError, match="no percentile"):
        percentile([], 50)


# ---- runs that measure several figures ----------------------------------------------------------


def test_the_figures_of_a_round_come_from_one_run() -> None:
    values = iter((1.0, 2.0))

    def measure() -> dict[str, Sample]:
        value = next(values)
        return {"p50": Sample(value), "p99": Sample(10 * value)}

    runs = SharedRun(measure)
    taken = [runs.take(figure).value for figure in ("p50", "p99", "p50", "p99")]
    assert taken == [1.0, 10.0, 2.0, 20.0]


# ---- recovery -----------------------------------------------------------------------------------


def test_recovery_ends_with_the_first_ack_of_a_tuple_that_was_emitted_after_the_kill() -> None:
    emitted = np.array([0, 900, 1_100, 1_200]) * 10**6
    acked = np.array([10, 1_050, 1_800, 1_600]) * 10**6  # the second was open at the kill
    deliveries = DeliveryTimes(emitted, acked, acked, 0)
    assert first_ack_s(deliveries, 1_000 * 10**6) == pytest.approx(0.6)


def test_without_an_ack_after_the_kill_recovery_does_not_end() -> None:
    emitted, acked = np.array([0, 2]), np.array([1, NEVER])
    assert first_ack_s(DeliveryTimes(emitted, acked, acked, 0), 1) == inf


# ---- the model ----------------------------------------------------------------------------------

COSTS = Costs(hop_ns=500, spout_ns=1_000, update_ns=50, byte_ns=1, packet_ns=1e6)
SMALL = Load(nodes=2, cores=4, tuples_s=1e6, hops=2, record_bytes=100)


def named(load: Load, costs: Costs, name: str) -> model.Part:
    (match,) = (part for part in model.parts(load, costs) if part.name == name)
    return match


def test_processor_time_is_the_cost_of_each_part_times_how_often_it_happens() -> None:
    spent = model.cores_by_part(SMALL, COSTS)
    assert spent == pytest.approx(
        {"spouts": 1.0, "bolts": 1.0, "ackers": 0.15, "bytes of records": 0.2 * 7 / 8}
    )


def test_ackers_get_as_many_shards_as_keep_each_below_seven_tenths_of_a_core() -> None:
    assert model.shards(SMALL, COSTS) == 1
    assert model.shards(replace(SMALL, tuples_s=10e6), COSTS) == 3  # 1.5 cores


def test_a_node_sends_its_share_of_records_and_updates_to_the_other_nodes() -> None:
    costs = replace(COSTS, edge_bytes=20, update_bytes=16)
    assert model.network_bytes_s(SMALL, costs) == pytest.approx(1e6 * (240 + 48) / 2 / 2)
    assert model.network_bytes_s(replace(SMALL, nodes=1), costs) == 0


def test_a_turn_over_all_peers_takes_longer_if_a_worker_has_more_other_work() -> None:
    idle = replace(SMALL, tuples_s=0.0)
    assert model.turn(idle, COSTS) == pytest.approx(0.007)
    assert model.turn(SMALL, COSTS) > model.turn(idle, COSTS)
    assert model.turn(replace(SMALL, tuples_s=100e6), COSTS) == inf


def test_the_master_serves_reports_and_heartbeats_of_each_worker() -> None:
    costs = replace(COSTS, master_call_ns=100_000, report_s=0.25, beat_s=2.0)
    assert model.master_cores(SMALL, costs) == pytest.approx(8 * 4.5 * 1e-4)


def test_twice_the_workers_have_four_times_the_links() -> None:
    links = [
        named(replace(SMALL, workers=workers), COSTS, "links: total").needs
        for workers in (100, 200)
    ]
    assert links == [9_900, 39_800]


def test_the_most_exceeded_limit_is_named_first() -> None:
    slow_packets = model.sentences(Load(), replace(COSTS, packet_ns=50e6))[0]
    assert "above their limits are one packet to each peer" in slow_packets
    slow_master = model.sentences(Load(), replace(COSTS, packet_ns=1e3, master_call_ns=1e9))[0]
    assert "above their limits are master: reports and heartbeats" in slow_master


def test_a_load_within_all_limits_is_reported_as_such() -> None:
    assert "no limit is exceeded" in model.sentences(SMALL, COSTS)[0]


def test_the_fewest_workers_have_enough_cores_for_the_processor_time() -> None:
    few = replace(SMALL, workers=model.fewest_workers(SMALL, COSTS))
    assert 0 < named(few, COSTS, "cores: total").used <= 1.05
    fewer = replace(few, workers=few.processes - 1)
    assert named(fewer, COSTS, "cores: total").used > 1


def row(workload: str, system: str, variant: str, value: float, **more: float) -> dict[str, Any]:
    return {
        "workload": workload, "system": system, "variant": variant, "median": value, **more
    }  # fmt: skip


def test_measured_costs_replace_the_assumed_ones() -> None:
    results = {
        "results": [
            row("ledger", "sunshower", "in-order", 40.0),
            row("sweeps", "sunshower", "chain-1", 1e6, cores=2.0),
            row("sweeps", "sunshower", "chain-16", 2e5, cores=1.9),
            row("sweeps", "sunshower", "record-bytes-1000000", 250.0, cores=1.0),
            row("sweeps", "ray", "call-cpu-caller", 300.0),
            row("sweeps", "ray", "call-cpu-answerer", 200.0),
            row("memory", "sunshower", "both-per-pending-root", 240.0),
        ]
    }
    costs, measured = costs_of(results)
    assert costs == replace(
        Costs(),
        update_ns=25.0,
        hop_ns=pytest.approx(500),
        spout_ns=pytest.approx(1_000),
        byte_ns=pytest.approx(4.0),
        packet_ns=pytest.approx(500_000),
        master_call_ns=pytest.approx(200_000),
        root_bytes=240.0,
    )
    assert {"hop_ns", "spout_ns", "update_ns", "byte_ns", "packet_ns"} < set(measured)


def test_without_results_all_costs_are_assumed() -> None:
    assert costs_of({}) == (Costs(), [])
    assert "Measured costs: none" in model.findings({})[-1]


def test_each_row_of_the_table_has_a_cell_for_each_head() -> None:
    table = model.rows({})
    assert {len(line) for line in table} == {len(model.HEADS)}
    assert all(line[0] for line in table)
