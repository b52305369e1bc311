"""A Ctrl-C while a local Ray starts, with a stub of `ray.init`."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import ray

from sunshower.actors.starting import start_ray
from sunshower.experiments.runner.interrupts import Interrupts


class Starts:
    """Stubs of `ray.init`, with `interrupts` in the middle of it, and of `ray.shutdown`."""

    def __init__(self, interrupts: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.interrupts, self.steps = interrupts, list[str]()
        monkeypatch.setattr(ray, "init", self.init)
        monkeypatch.setattr(ray, "shutdown", self.shutdown)
        monkeypatch.setattr("sunshower.actors.starting._print_notices_apart", lambda: None)

    def init(self, **_: Any) -> None:
        self.steps.append("begin")
        for _ in range(self.interrupts):
            signal.raise_signal(signal.SIGINT)
        self.steps.append("end")

    def shutdown(self) -> None:
        self.steps.append("shutdown")


@pytest.mark.parametrize("handled", [nullcontext, Interrupts], ids=["by Python", "by a command"])
@pytest.mark.parametrize(
    ("interrupts", "steps"), [(1, ["begin", "end", "shutdown"]), (2, ["begin"])]
)
def test_one_interrupt_waits_until_a_local_ray_has_started_and_ends_it_and_a_second_does_not(
    interrupts: int,
    steps: list[str],
    handled: Callable[[], AbstractContextManager[object]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starts = Starts(interrupts, monkeypatch)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), handled():
            start_ray(None, quiet=True)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert starts.steps == steps


def test_a_handler_of_interrupts_that_does_not_raise_is_called_once_ray_has_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starts = Starts(1, monkeypatch)
    before = signal.signal(signal.SIGINT, lambda *_: starts.steps.append("handled"))
    try:
        start_ray(None, quiet=True)
    finally:
        signal.signal(signal.SIGINT, before)
    assert starts.steps == ["begin", "end", "handled"]
