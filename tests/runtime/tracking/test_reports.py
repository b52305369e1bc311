"""Each root belongs to one acker shard, and all reports about it reach that shard."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.failures import Cause, Failure
from sunshower.runtime.tracking.reports import Reports, Shards

LAYOUTS = [
    [[9]],
    [[9], [9]],
    [[8], [9]],
    [[8, 9], [8, 9]],
    [[7, 8, 9], [9]],
]
layouts = st.sampled_from(LAYOUTS)
roots = st.builds(
    lambda life, generation, slot: life << 48 | generation << 24 | slot,
    st.integers(1, 9),
    st.integers(0, 5),
    st.integers(0, 20),
)
many = st.lists(roots, min_size=1, max_size=30)


def owners(shards: list[list[int]], ids: list[int]) -> list[int]:
    array = np.array(ids, np.uint64)
    tasks = [-1] * len(ids)
    for task, which in Shards(shards).split(array):
        for index in np.arange(len(ids))[which].tolist():
            assert tasks[index] == -1, "two shards follow one root"
            tasks[index] = task
    return tasks


@given(layouts, many)
def test_each_root_has_one_shard_by_spout_and_slot(shards: list[list[int]], ids: list[int]) -> None:
    expected = []
    for root in ids:
        mine = shards[(root >> 48) % len(shards)]
        expected.append(mine[(root & 0xFFFFFF) % len(mine)])
    assert owners(shards, ids) == expected


@given(layouts, many)
def test_reports_reach_the_shards_that_follow(shards: list[list[int]], ids: list[int]) -> None:
    reports = Reports(Shards(shards))
    array = np.array(ids, np.uint64)
    reports.start(array, array)
    reports.ack(array, array ^ np.uint64(7))
    reports.fail(array, Failure(Cause.FAILED))
    reported: list[tuple[int, int]] = []
    for task, report in reports.take().items():
        reported += [(root, task) for root, _ in report.fails]
        starts = [root for pair in report.starts for root in pair[0].tolist()]
        assert starts == [root for root, _ in report.fails]
        for acked, xors in report.acks:  # neighbours of one root are folded; see test_edges.py
            assert len(acked) == len(xors)
            assert set(acked.tolist()) <= set(starts)
    assert sorted(reported) == sorted(zip(ids, owners(shards, ids), strict=True))


def test_taken_reports_are_gone() -> None:
    reports = Reports(Shards([[9]]))
    reports.ack(np.ones(1, np.uint64), np.ones(1, np.uint64))
    assert set(reports.take()) == {9}
    assert reports.take() == {}


@pytest.mark.parametrize("kind", ["start", "ack"])
def test_empty_report_is_not_sent(kind: str) -> None:
    reports = Reports(Shards([[9]]))
    getattr(reports, kind)(np.zeros(0, np.uint64), np.zeros(0, np.uint64))
    assert reports.take() == {}


def test_without_ackers_nothing_is_reported() -> None:
    reports = Reports(None)
    ids = np.ones(1, np.uint64)
    reports.start(ids, ids)
    reports.ack(ids, ids)
    reports.fail(ids, Failure(Cause.FAILED))
    assert not reports.tracked
    assert reports.take() == {}
