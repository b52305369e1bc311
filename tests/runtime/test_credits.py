"""What may wait before a task is worth the same time, whether it is quick or slow."""

from __future__ import annotations

import pytest

from sunshower.config import Config
from sunshower.runtime.credits import FIRST_WINDOW, ServiceTime

CONFIG = Config(slice_s=0.005, window_s=0.25)


def after(record_s: float, slices: int = 50) -> ServiceTime:
    service = ServiceTime(CONFIG)
    for _ in range(slices):
        service.measure(10, 10 * record_s)
    return service


@pytest.mark.parametrize("record_s", [1e-5, 1e-4, 1e-3, 1e-2])
def test_window_and_slice_are_worth_their_seconds(record_s: float) -> None:
    service = after(record_s)
    assert service.window == pytest.approx(0.25 / record_s, rel=0.01)
    assert service.slice_records == pytest.approx(max(1, 0.005 / record_s), rel=0.01, abs=1)


def test_slow_task_still_has_one_record_in_hand_and_one_on_its_way() -> None:
    service = after(10.0)
    assert (service.slice_records, service.window) == (1, 2)


def test_quick_task_meets_the_hard_limit() -> None:
    assert after(0.0).window == CONFIG.window_records_max


def test_limits_grow_step_by_step_and_fall_at_once() -> None:
    service = ServiceTime(CONFIG)
    service.measure(1, 1e-6)
    assert service.window == 4 * FIRST_WINDOW
    service.measure(1, 100.0)
    assert service.window == 2


def test_one_slow_slice_is_forgotten() -> None:
    service = after(1e-4)
    service.measure(10, 1.0)
    for _ in range(30):
        service.measure(10, 1e-3)
    assert service.window == pytest.approx(2_500, rel=0.05)
