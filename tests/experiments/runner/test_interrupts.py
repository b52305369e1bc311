"""Tests of the signal handlers: the first requests an end, the second raises."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator

import pytest

from sunshower.experiments.runner.interrupts import Interrupts

both = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@both
def test_the_first_signal_requests_an_end(number: signal.Signals) -> None:
    with Interrupts() as interrupts:
        interrupts.defer()
        assert not interrupts.requested
        signal.raise_signal(number)
        assert interrupts.requested


@both
def test_the_second_signal_raises(number: signal.Signals) -> None:
    with Interrupts() as interrupts:
        interrupts.defer()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)


@pytest.fixture
def _without_nohup() -> Iterator[None]:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("_without_nohup")
def test_a_terminal_that_is_closed_requests_an_end_however_often_it_says_so() -> None:
    with Interrupts() as interrupts:
        interrupts.defer()
        signal.raise_signal(signal.SIGHUP)
        assert interrupts.requested
        signal.raise_signal(signal.SIGHUP)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)


def test_a_signal_to_quit_ends_at_once() -> None:
    with Interrupts() as interrupts:
        interrupts.defer()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGQUIT)


def test_a_command_under_nohup_ignores_that_its_terminal_is_closed() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            interrupts.defer()
            signal.raise_signal(signal.SIGHUP)
            assert not interrupts.requested
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_before_defer_the_first_signal_raises() -> None:
    with Interrupts(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)


def test_handlers_that_others_have_set_meanwhile_are_replaced() -> None:
    with Interrupts() as interrupts:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Ray does so when it starts
        interrupts.defer()
        signal.raise_signal(signal.SIGTERM)
        assert interrupts.requested


def test_handlers_are_restored() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Interrupts() as interrupts:
        interrupts.defer()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_wait_ends_when_an_end_is_requested() -> None:
    with Interrupts() as interrupts:
        interrupts.defer()
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        interrupts.wait(60)
        assert interrupts.requested


def test_a_signal_may_arrive_at_any_step_of_a_wait() -> None:
    def steps_of_wait(signal_at: int) -> int:
        """Wait, with a signal at this call or return, and return the number of them."""
        steps = 0

        def on_step(*_: object) -> None:
            nonlocal steps
            steps += 1
            if steps == signal_at:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGINT)
                sys.setprofile(on_step)

        with Interrupts() as interrupts:
            interrupts.defer()
            sys.setprofile(on_step)
            try:
                interrupts.wait(0.01)
            finally:
                sys.setprofile(None)
            assert interrupts.requested == (signal_at > 0)
        return steps

    for signal_at in range(1, steps_of_wait(0)):
        steps_of_wait(signal_at)


def test_a_second_signal_ends_a_wait_at_once() -> None:
    with Interrupts() as interrupts:
        interrupts.defer()
        signal.raise_signal(signal.SIGINT)
        second = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):  # the signal may also come before the wait
            start_and_wait(second, interrupts)


def start_and_wait(signal_later: threading.Timer, interrupts: Interrupts) -> None:
    signal_later.start()
    interrupts.wait(60)
