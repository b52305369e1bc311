"""Spout, bolt and acker as three bare Ray actors: the baseline of const → null.

They have no failures, credits, groupings or types, and no backpressure except a limit of
unanswered calls. The spout repeats its step by calling itself.
"""

from __future__ import annotations

import gc
import os
import time
from typing import Any

import msgpack
import numpy as np
import ray

PENDING = 1 << 16
_WINDOW = 16  # unanswered calls to the bolt
_POLL_S = 0.0005
_SLOT_MASK = np.uint64(PENDING - 1)


class BareSpout:
    """Emits numbers in frames while slots are free."""

    def __init__(self, records: int) -> None:
        gc.disable()
        self._records = records  # in a frame
        self._free = np.arange(PENDING, dtype=np.uint64)
        self._free_count = PENDING
        self._edges = np.random.default_rng()
        self._calls: list[Any] = []
        self._number = 0
        self.emitted = self.acked = 0
        self.begun_s = self.last_s = 0.0

    def connect(self, me: Any, bolt: Any, acker: Any) -> int:
        self._me, self._bolt, self._acker = me, bolt, acker
        return os.getpid()

    def next_tuple(self) -> tuple[int]:
        self._number += 1
        return (self._number,)

    def begin(self, seconds: float) -> None:
        self.begun_s = time.monotonic()
        self.step(self.begun_s + seconds)

    def step(self, end_s: float) -> None:
        count = min(self._records, self._free_count)
        if count:
            self._emit(count)
        else:
            time.sleep(_POLL_S)
        if time.monotonic() < end_s:
            self._me.step.options(num_returns=0).remote(end_s)

    def _emit(self, count: int) -> None:
        make = self.next_tuple
        records = [make() for _ in range(count)]
        roots = self._free[self._free_count - count : self._free_count].tobytes()
        self._free_count -= count
        edges = self._edges.integers(1, 1 << 64, count, dtype=np.uint64).tobytes()
        self._acker.update.options(num_returns=0).remote(msgpack.packb((roots, edges)), True)
        frame = msgpack.packb((records, roots, edges))
        self._calls.append(self._bolt.deliver.remote(frame))
        self.emitted += count
        if len(self._calls) > _WINDOW:
            _, self._calls = ray.wait(self._calls, num_returns=len(self._calls) - _WINDOW)

    def complete(self, roots: bytes) -> None:
        done = np.frombuffer(roots, np.uint64)
        self._free[self._free_count : self._free_count + len(done)] = done
        self._free_count += len(done)
        self.acked += len(done)
        self.last_s = time.monotonic()

    def count(self) -> tuple[int, int, float, float]:
        return self.emitted, self.acked, self.begun_s, self.last_s


class BareBolt:
    """Reads every record and reports its edge."""

    def __init__(self) -> None:
        gc.disable()
        self.odd = 0

    def connect(self, acker: Any) -> int:
        self._acker = acker
        return os.getpid()

    def execute(self, record: tuple[int]) -> None:
        self.odd += record[0] & 1

    def deliver(self, frame: bytes) -> None:
        records, roots, edges = msgpack.unpackb(frame, use_list=False)
        execute = self.execute
        for record in records:
            execute(record)
        self._acker.update.options(num_returns=0).remote(msgpack.packb((roots, edges)), False)


class BareAcker:
    """XORs edges by root; a started root whose XOR is zero is complete."""

    def __init__(self) -> None:
        self._xor = np.zeros(PENDING, np.uint64)
        self._started = np.zeros(PENDING, np.bool_)

    def connect(self, spout: Any) -> int:
        self._spout = spout
        return os.getpid()

    def update(self, report: bytes, starts: bool) -> None:
        root_bytes, edges = msgpack.unpackb(report)
        roots = np.frombuffer(root_bytes, np.uint64)
        slots = (roots & _SLOT_MASK).astype(np.int64)
        np.bitwise_xor.at(self._xor, slots, np.frombuffer(edges, np.uint64))
        if starts:
            self._started[slots] = True
        done = (self._xor[slots] == 0) & self._started[slots]
        if done.any():
            self._started[slots[done]] = False
            self._spout.complete.options(num_returns=0).remote(roots[done].tobytes())
