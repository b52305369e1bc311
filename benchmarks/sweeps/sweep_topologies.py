"""The topologies of the sweeps: bolts in a row that do almost no work."""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator
from math import inf
from typing import Any

from benchmarks.start_signal import POLL_S, StartSignal
from benchmarks.sweeps.open_loop import percentile
from benchmarks.topologies import NullBolt, Numbers, Sink, WaitingSpout, identity
from sunshower import Bolt, Context, Topology
from sunshower.config import Internals

_VOLUME = 1 << 26  # bytes of large records that may be pending
_CHUNK = 1 << 18  # bytes of records between two readings of the clock
_PENDING = 1 << 15
_BURST = 1_000  # records between two readings of the clock
_STRIDE = 2_654_435_761  # a prime, so that successive numbers have distant keys
_WARM_S = 0.5  # records that are due earlier are not part of the latencies
_FASTEST = 4_000_000  # records a second for which a source allocates memory


class Sized(WaitingSpout):
    """Records of `size` bytes, at full speed for `seconds`."""

    emits = ("value",)

    def __init__(self, signal: StartSignal, seconds: float, size: int) -> None:
        super().__init__(signal)
        self._seconds, self._size = seconds, size

    def records(self) -> Iterator[Any]:
        yield from self.wait_for_start()
        end_s, record = time.monotonic() + self._seconds, (bytes(self._size),)
        chunk = max(1, min(1_000, _CHUNK // self._size))
        while time.monotonic() < end_s:
            for _ in range(chunk):
                yield record


class DiscardBolt(Sink):
    """Discards records."""

    def process(self, record: Any) -> None:
        pass

    def result(self) -> tuple[None, float]:
        return None, self.last_s


class Keyed(Numbers):
    """Records with one of `keys` keys, at full speed for `seconds`."""

    emits = ("key",)

    def __init__(self, signal: StartSignal, seconds: float, keys: int) -> None:
        super().__init__(signal, seconds)
        self._keys = keys

    def records(self) -> Iterator[Any]:
        for record in super().records():
            yield None if record is None else (record[0] * _STRIDE % self._keys,)


class CountKeys(DiscardBolt):
    """Counts by key, in a dictionary that contains all keys from the start."""

    def __init__(self, keys: int) -> None:
        self._keys = keys

    def prepare(self, context: Context) -> None:
        self.counts = dict.fromkeys(range(self._keys), 0)

    def process(self, record: Any) -> None:
        self.counts[record[0]] += 1


class Multiply(Bolt[Any, Any]):
    """Emits `times` records for each input."""

    def __init__(self, times: int) -> None:
        self._times = times

    def process(self, record: Any) -> Iterator[Any]:
        for _ in range(self._times):
            yield record


class Loaded(WaitingSpout):
    """`rate` numbers a second for `seconds`, in an open loop; at full speed if it is infinite."""

    emits = ("value",)

    def __init__(self, signal: StartSignal, seconds: float, rate: float) -> None:
        super().__init__(signal)
        self._seconds, self._rate = seconds, rate

    def open(self, context: Context) -> None:
        records_max = int(min(self._rate, _FASTEST) * self._seconds)
        self._acked_s = array("d", bytes(8 * records_max))
        super().open(context)

    def records(self) -> Iterator[Any]:
        yield from self.wait_for_start()
        begun_s, number, total = self._begun_s or 0.0, 0, len(self._acked_s)
        while number < total:
            passed_s = time.monotonic() - begun_s
            if self._rate == inf and passed_s >= self._seconds:
                return
            due = number + _BURST if self._rate == inf else int(passed_s * self._rate)
            if due <= number:
                yield None
            while number < min(due, total):
                yield (number,)
                number += 1

    def ack(self, message_id: int) -> None:
        self._acked_s[message_id] = time.monotonic()

    def result(self) -> tuple[bool, float, dict[int, float]]:
        """(whether it is open, acked tuples a second, milliseconds by percentile)."""
        last_s = max(self._acked_s) if self._begun_s else 0.0
        if self._begun_s is None or not last_s:
            return self._is_ready, 0.0, {}
        acked = len(self._acked_s) - self._acked_s.count(0.0)
        return self._is_ready, acked / (last_s - self._begun_s), self._percentiles(self._begun_s)

    def _percentiles(self, begun_s: float) -> dict[int, float]:
        """The time from due to acked. Without a rate, records have no due times."""
        if self._rate == inf:
            return {}
        components = [
            1_000 * (acked_s - begun_s - number / self._rate)
            for number, acked_s in enumerate(self._acked_s)
            if acked_s and number >= _WARM_S * self._rate
        ]
        return (
            {percent: percentile(components, percent) for percent in (50, 99)} if components else {}
        )


class NeverAck(Bolt[Any, Any]):
    """Never acks: its inputs stay pending at their spout and acker."""

    def execute(self, tuple: Any, out: Any) -> None:
        pass


class Endless(WaitingSpout):
    """Numbers without end."""

    emits = ("value",)

    def records(self) -> Iterator[Any]:
        yield from self.wait_for_start()
        number = 0
        while True:
            yield (number,)
            number += 1


class FirstTime(Bolt[Any, Any]):
    """Notes when it processed its first tuple."""

    first_s = 0.0

    def process(self, record: Any) -> None:
        self.first_s = self.first_s or time.monotonic()

    def result(self) -> float:
        return self.first_s


class TenNumbers(WaitingSpout):
    """Ten numbers, at once."""

    emits = ("value",)

    def __init__(self) -> None:
        pass

    def open(self, context: Context) -> None:
        pass

    def records(self) -> Iterator[Any]:
        yield from ((number,) for number in range(10))

    def result(self) -> None:
        return None


def sized(signal: StartSignal, seconds: float, size: int) -> Topology:
    """Records of `size` bytes that are discarded; at most 64 MB of them are pending."""
    pending = max(16, min(_PENDING, _VOLUME // size))
    topology = Topology("sized", internals=Internals(idle_poll_s=POLL_S), spout_pending=pending)
    source = topology.spout("source", Sized(signal, seconds, size))
    source.shuffle().bolt("sink", DiscardBolt, fields=())
    return topology


def keyed(signal: StartSignal, seconds: float, keys: int) -> Topology:
    """A count by key in two tasks, each with a dictionary of `keys` keys."""
    topology = Topology("keyed", internals=Internals(idle_poll_s=POLL_S))
    source = topology.spout("source", Keyed(signal, seconds, keys))
    source.fields("key").bolt("sink", CountKeys(keys), parallelism=2, fields=())
    return topology


def fanned_out(signal: StartSignal, seconds: float, times: int) -> Topology:
    """`times` derived records for each tuple of the source."""
    topology = Topology("fanned-out", internals=Internals(idle_poll_s=POLL_S))
    source = topology.spout("source", Numbers(signal, seconds))
    many = source.local_or_shuffle().bolt("many", Multiply(times), fields=("value",))
    many.local_or_shuffle().bolt("sink", DiscardBolt, fields=())
    return topology


def bolt_chain(
    signal: StartSignal, seconds: float, bolts: int = 1, tasks: int = 1, ackers: int | None = None
) -> Topology:
    """A source, `bolts` bolts in a row that forward, and a sink; `tasks` tasks of each bolt."""
    topology = Topology("lined-up", internals=Internals(idle_poll_s=POLL_S), ackers=ackers)
    stream = topology.spout("source", Numbers(signal, seconds))
    for number in range(bolts):
        near = stream.shuffle()
        stream = near.bolt(f"id-{number}", identity, fields=("value",), parallelism=tasks)
    stream.shuffle().bolt("sink", NullBolt, fields=(), parallelism=tasks)
    return topology


def loaded(signal: StartSignal, seconds: float, rate: float) -> Topology:
    """Const → id → null at a fixed rate."""
    topology = Topology("loaded", internals=Internals(idle_poll_s=POLL_S))
    stream = topology.spout("source", Loaded(signal, seconds, rate))
    through = stream.shuffle().bolt("id", identity, fields=("value",))
    through.shuffle().bolt("sink", NullBolt, fields=())
    return topology


def never_acking(signal: StartSignal, roots: int) -> Topology:
    """`roots` pending roots, which are never acked."""
    topology = Topology("holding", spout_pending=roots, message_timeout_s=600.0)
    topology.spout("source", Endless(signal)).shuffle().bolt("sink", NeverAck, fields=())
    return topology


def starting() -> Topology:
    """Const → id → null, ten tuples."""
    topology = Topology("starting")
    through = (
        topology.spout("source", TenNumbers()).shuffle().bolt("id", identity, fields=("value",))
    )
    through.shuffle().bolt("sink", FirstTime, fields=())
    return topology
