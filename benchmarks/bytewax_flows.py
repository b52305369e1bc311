"""Flows of Bytewax, in one or two processes with one or two threads each; those of word counts."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
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

    operator: str  # "count_final" or "stateful_map", or a query of Nexmark
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

    def jobs(self, declare: Declare) -> list[Job]:
        """One job for each process."""
        addresses = _free_addresses(self.processes) if self.processes > 1 else []
        return [_Process(self, declare, addresses, index) for index in range(self.processes)]


@dataclass(frozen=True)
class _Process:
    setup: Setup
    declare: Declare
    addresses: Sequence[str]
    index: int

    def __call__(self, starter: Starter) -> Outcome:
        tally = Tally()
        flow = self.declare(self.setup, starter, tally)
        cluster_main(
            flow, list(self.addresses), self.index, worker_count_per_proc=self.setup.threads
        )
        cpu_s = tally.ended_cpu_s - tally.begun_cpu_s
        return Outcome(tally.begun_s, tally.ended_s, tally.counted, cpu_s)


@dataclass
class Tally:
    """Times and counts that the source and the sink of one process record."""

    begun_s: float = float("inf")
    ended_s: float = 0.0
    begun_cpu_s: float = 0.0
    ended_cpu_s: float = 0.0
    counted: int = 0

    def begin(self) -> None:
        if self.begun_s == float("inf"):
            self.begun_s, self.begun_cpu_s = time.monotonic(), time.process_time()


Declare = Callable[[Setup, Starter, Tally], Dataflow]  # can be pickled


class Source(FixedPartitionedSource[Any, None]):
    """Numbered partitions. `read` returns the batches of one, which is the work that is measured.

    A partition reports to the starter that it is ready, and is empty until the start signal.
    """

    def __init__(
        self, partitions: int, read: Callable[[int], Iterator[Any]], starter: Starter, tally: Tally
    ) -> None:
        self._partitions, self._read, self._starter, self._tally = partitions, read, starter, tally

    def list_parts(self) -> list[str]:
        return [str(index) for index in range(self._partitions)]

    def build_part(self, step_id: str, for_part: str, resume_state: None) -> _Partition:
        batches = self._read(int(for_part))
        self._starter.ready()
        return _Partition(batches, self._starter, self._tally)


class _Partition(StatefulSourcePartition[Any, None]):
    def __init__(self, batches: Iterator[Any], starter: Starter, tally: Tally) -> None:
        self._batches, self._starter, self._tally = batches, starter, tally
        self._has_begun = False

    def next_batch(self) -> Any:
        if not self._has_begun:
            if not self._starter.signal.has_started:
                return []
            self._has_begun = True
            self._tally.begin()
        return next(self._batches)  # at its end it raises StopIteration, as Bytewax wants

    def next_awake(self) -> datetime | None:
        return None if self._has_begun else datetime.now(UTC) + timedelta(seconds=POLL_S)

    def snapshot(self) -> None:
        return None


@dataclass
class CountingSink(DynamicSink[Any]):
    """Records the time of the last result, and adds what `count` returns for the items."""

    tally: Tally
    count: Callable[[list[Any]], int]

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _SinkPartition:
        return _SinkPartition(self.tally, self.count)


class _SinkPartition(StatelessSinkPartition[Any]):
    def __init__(self, tally: Tally, count: Callable[[list[Any]], int]) -> None:
        self._tally, self._count = tally, count

    def write_batch(self, items: list[Any]) -> None:
        tally = self._tally
        tally.counted += self._count(items)
        tally.ended_s, tally.ended_cpu_s = time.monotonic(), time.process_time()


def count_words(path: Path, setup: Setup, starter: Starter, tally: Tally) -> Dataflow:
    """The words of a file, with a partition for each worker."""
    all_lines, size = read_lines(path), setup.lines

    def read(index: int) -> Iterator[list[str]]:
        share = all_lines[index :: setup.workers]
        return (share[at : at + size] for at in range(0, len(share), size))

    flow = Dataflow("word_count")
    lines = op.input("lines", flow, Source(setup.workers, read, starter, tally))
    if setup.operator == "count_final":
        words = op.flat_map("split", lines, str.split)
        counts: Any = op.count_final("count", words, _identity)
        sink = CountingSink(tally, _add_counts)
    else:
        counts = op.stateful_map("count", op.flat_map("split", lines, _pairs), _increment)
        sink = CountingSink(tally, len)
    op.output("out", counts, sink)
    return flow


def _add_counts(items: list[tuple[str, int]]) -> int:
    return sum(count for _, count in items)


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
