"""The first signal asks, the second insists, and the old handlers come back."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from sunshower.cli.interrupts import Interrupts

both = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@both
def test_the_first_signal_asks(number: signal.Signals) -> None:
    with Interrupts() as interrupts:
        interrupts.be_patient()
        assert not interrupts.asked
        signal.raise_signal(number)
        assert interrupts.asked


@both
def test_the_second_signal_insists(number: signal.Signals) -> None:
    with Interrupts() as interrupts:
        interrupts.be_patient()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)


def test_before_there_is_anything_to_finish_the_first_signal_insists() -> None:
    with Interrupts(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)


def test_handlers_that_others_have_set_meanwhile_are_replaced() -> None:
    with Interrupts() as interrupts:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Ray does so when it starts
        interrupts.be_patient()
        signal.raise_signal(signal.SIGTERM)
        assert interrupts.asked


def test_afterwards_signals_are_what_they_were() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Interrupts() as interrupts:
        interrupts.be_patient()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_wait_ends_when_somebody_asks() -> None:
    with Interrupts() as interrupts:
        interrupts.be_patient()
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        interrupts.wait(60)
        assert interrupts.asked


def test_a_second_signal_ends_a_wait_at_once() -> None:
    with Interrupts() as interrupts:
        interrupts.be_patient()
        signal.raise_signal(signal.SIGINT)
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            interrupts.wait(60)
