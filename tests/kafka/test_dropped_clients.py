"""Dropped Kafka clients end at once, with their threads, also without a garbage collection."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import confluent_kafka
import pytest

from sunshower.kafka.consuming.consumer import Consumer
from sunshower.kafka.producing.producer import Message, Producer

UNREACHABLE = {"bootstrap.servers": "127.0.0.1:1", "group.id": "none"}


@pytest.fixture(autouse=True)
def no_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def threads() -> set[str]:
    """The ids of the threads of this process."""
    return {path.name for path in Path("/proc/self/task").iterdir()}


@pytest.mark.parametrize("kind", [Producer, Consumer])
def test_dropped_client_ends_its_threads(kind: type[Producer] | type[Consumer]) -> None:
    settings = UNREACHABLE if kind is Consumer else {"bootstrap.servers": "127.0.0.1:1"}
    kind(settings)  # the first client starts threads that all clients share
    before = threads()
    client = kind(settings)
    client_threads = threads() - before
    assert client_threads
    gone = weakref.ref(client)
    del client
    assert gone() is None
    assert not threads() & client_threads


def arrivals() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "kafka-arrivals"]


def is_open(pipe: str) -> bool:
    """Whether this process has an end of this pipe (as `/proc` names it)."""
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            if os.readlink(path) == pipe:
                return True
    return False


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "dropped"])
def test_a_consumer_that_wakes_a_spout_ends_with_its_thread(is_closed: bool) -> None:
    consumer = Consumer(UNREACHABLE)
    consumer.call_on_arrival(lambda: None)
    (thread,) = arrivals()
    if is_closed:
        consumer.close()
        consumer.close()
    del consumer
    thread.join(60)
    assert not thread.is_alive()


def test_a_client_of_another_version_is_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer, open_pipe, pipes = Consumer(UNREACHABLE), os.pipe, list[str]()

    def pipe() -> tuple[int, int]:
        ends = open_pipe()
        pipes.append(os.readlink(f"/proc/self/fd/{ends[0]}"))
        return ends

    for where, name, value in [
        (confluent_kafka, "version", lambda: "3.0.0"),
        (ctypes, "CDLL", lambda _: object()),  # without these functions
        (consumer, "client", object()),
    ]:
        with monkeypatch.context() as patch:
            patch.setattr(where, name, value)
            patch.setattr(os, "pipe", pipe)
            consumer.call_on_arrival(lambda: None)
    assert not arrivals()
    assert pipes
    assert not any(map(is_open, pipes))
    consumer.client.close()
    consumer.call_on_arrival(lambda: None)
    assert not arrivals()


def test_abandoned_producer_with_messages_keeps_no_reference_to_its_sender() -> None:
    class Sender:
        def __init__(self) -> None:
            self.producer = Producer({"bootstrap.servers": "127.0.0.1:1"})
            self.producer._known["t"] = 1
            assert self.producer.send(Message("t", b"x", None, None, 0), self.delivered)

        def delivered(self, error: object, message: object) -> None: ...

    sender = Sender()
    sender.producer.abandon()
    gone = weakref.ref(sender)
    del sender
    assert gone() is None


def test_a_client_that_does_not_end_does_not_delay_its_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sunshower.kafka.consuming.consumer._CLOSE_S", 0.0)
    may_end, has_ended = threading.Event(), threading.Event()

    class Stuck:
        def close(self) -> None:
            may_end.wait(10)
            has_ended.set()

    consumer = Consumer(UNREACHABLE)
    monkeypatch.setattr(consumer, "client", Stuck())
    consumer.close()
    assert not has_ended.is_set()
    may_end.set()
    assert has_ended.wait(10), "it goes on closing"
