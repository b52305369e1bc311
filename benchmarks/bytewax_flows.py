"""Word counts with Bytewax, in one or two processes with one or two threads each."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import cluster_main

from benchmarks.corpus import read_lines
from benchmarks.measure import Outcome
from benchmarks.processes import Job, Starter
from benchmarks.start_signal import POLL_S


@dataclass(frozen=True)
class Setup:
    """A configuration of Bytewax. `lines`: in a batch."""

    operator: str  # "count_final" or "stateful_map"
    processes: int
    threads: int  # of each process
    lines: int

    @property
    def name(self) -> str:
        processes = f"{self.processes} × {self.threads}"  # processes × threads
        return f"{processes}, {self.lines:,} lines a batch"

    @property
    def workers(self) -> int:
        return self.processes * self.threads

    def jobs(self, path: Path) -> list[Job]:
        """One job for each process."""
        addresses = _free_addresses(self.processes) if self.processes > 1 else []
        return [_Process(self, path, addresses, index) for index in range(self.processes)]


@dataclass(frozen=True)
class _Process:
    setup: Setup
    path: Path
    addresses: Sequence[str]
    index: int

    def __call__(self, starter: Starter) -> Outcome:
        tally = _Tally()
        flow = _flow(self.setup, _Source(self.setup, read_lines(self.path), starter, tally), tally)
        cluster_main(
            flow, list(self.addresses), self.index, worker_count_per_proc=self.setup.threads
        )
        cpu_s = tally.ended_cpu_s - tally.begun_cpu_s
        return Outcome(tally.begun_s, tally.ended_s, tally.counted, cpu_s)


@dataclass
class _Tally:
    """Times and counts that the source and the sink of one process record."""

    begun_s: float = float("inf")
    ended_s: float = 0.0
    begun_cpu_s: float = 0.0
    ended_cpu_s: float = 0.0
    counted: int = 0

    def begin(self) -> None:
        if self.begun_s == float("inf"):
            self.begun_s, self.begun_cpu_s = time.monotonic(), time.process_time()


class _Source(FixedPartitionedSource[str, None]):
    """The lines, in one partition for each worker."""

    def __init__(self, setup: Setup, lines: list[str], starter: Starter, tally: _Tally) -> None:
        self._setup, self._lines, self._starter, self._tally = setup, lines, starter, tally

    def list_parts(self) -> list[str]:
        return [str(index) for index in range(self._setup.workers)]

    def build_part(self, step_id: str, for_part: str, resume_state: None) -> _Partition:
        lines = self._lines[int(for_part) :: self._setup.workers]
        self._starter.ready()
        return _Partition(lines, self._setup.lines, self._starter, self._tally)


class _Partition(StatefulSourcePartition[str, None]):
    """Returns slices of a list, the fastest possible source."""

    def __init__(self, lines: list[str], size: int, starter: Starter, tally: _Tally) -> None:
        self._lines, self._size, self._starter, self._tally = lines, size, starter, tally
        self._position = 0
        self._has_begun = False

    def next_batch(self) -> list[str]:
        if not self._has_begun:
            if not self._starter.signal.has_started:
                return []
            self._has_begun = True
            self._tally.begin()
        if self._position >= len(self._lines):
            raise StopIteration
        self._position += self._size
        return self._lines[self._position - self._size : self._position]

    def next_awake(self) -> datetime | None:
        return None if self._has_begun else datetime.now(UTC) + timedelta(seconds=POLL_S)

    def snapshot(self) -> None:
        return None


@dataclass
class _Sink(DynamicSink[Any]):
    """Records the time of the last result, and counts. `final`: results are (word, count)."""

    tally: _Tally
    final: bool

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _SinkPartition:
        return _SinkPartition(self.tally, self.final)


class _SinkPartition(StatelessSinkPartition[Any]):
    def __init__(self, tally: _Tally, final: bool) -> None:
        self._tally, self._final = tally, final

    def write_batch(self, items: list[Any]) -> None:
        tally = self._tally
        tally.counted += sum(count for _, count in items) if self._final else len(items)
        tally.ended_s, tally.ended_cpu_s = time.monotonic(), time.process_time()


def _flow(setup: Setup, source: _Source, tally: _Tally) -> Dataflow:
    flow = Dataflow("word_count")
    lines = op.input("lines", flow, source)
    if setup.operator == "count_final":
        words = op.flat_map("split", lines, str.split)
        counts: Any = op.count_final("count", words, _identity)
    else:
        counts = op.stateful_map("count", op.flat_map("split", lines, _pairs), _increment)
    op.output("out", counts, _Sink(tally, setup.operator == "count_final"))
    return flow


def _identity(word: str) -> str:
    return word


def _pairs(line: str) -> list[tuple[str, None]]:
    """The words with their keys: faster than str.split followed by key_on."""
    return [(word, None) for word in line.split()]


def _increment(count: int | None, _: None) -> tuple[int, int]:
    count = (count or 0) + 1
    return count, count


def _free_addresses(count: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{opened.getsockname()[1]}" for opened in sockets]
    for opened in sockets:
        opened.close()
    return addresses
