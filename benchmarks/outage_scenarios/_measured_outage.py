"""Shared by scenarios: the load, the outage in the middle of it, and the evaluation.

numbers ──5,000/s──▶ the scenario's sink        at least once: no number may be missing
batches of words ──▶ a slow function ──▶ counts in its state    exactly once: each must be right

Half of the words are the same one.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.measure import BenchmarkError
from sunshower import Line, Number, Retry, Spout, Topology
from sunshower.actors.cluster import RayCluster
from sunshower.actors.run import RayRun
from sunshower.errors import TopologyFailed
from sunshower.runtime.events.metrics import Snapshot
from sunshower.trident import Bounds, InSqlite, Skip, StateFactory, TextFileBatches, batches
from sunshower.trident import count as counted

Figures = dict[str, float | int | str]

RATE = 5_000  # numbers a second
_WORDS, _LINES = 1_000, 2_000_000
_BATCH_ROWS, _BATCH_S = 777, 0.2  # no divisor of _WORDS, so a repeated batch changes the counts
_ROW_S = 0.0002  # the function is busy for most of the time of a batch
_START_MAX_S, _AROUND_S, _RECOVERY_MAX_S, _DRAIN_MAX_S = 60.0, 10.0, 120.0, 300.0
_POLL_S = 0.1


class Paced(Spout[Number]):
    """The numbers 0, 1, 2 …, `rate` a second."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def records(self) -> Iterator[Any]:
        """Yields None while no number is due."""
        begun_s = time.monotonic()
        for number in count():
            while number >= (time.monotonic() - begun_s) * self.rate:
                yield None
            yield Number(number)


@dataclass(frozen=True)
class Outage:
    """What begins and ends an outage, and what the sink and the state have at the end."""

    begin: Callable[[], None]
    end: Callable[[], None]
    written: Callable[[], Iterable[int]]
    counts: Callable[[], Mapping[Any, int]]


def loaded_topology(name: str, folder: Path, sink: Any, state: StateFactory) -> Topology:
    """Numbers to `sink`, and words counted in `state`. `folder`: for the topology's files."""
    words = folder / "words.txt"
    words.write_text("".join(f"{_word(number)}\n" for number in range(_LINES)))
    topology = Topology(name)
    retry = Retry(dead_letters=folder / "dead.jsonl")
    topology.spout("numbers", Paced(RATE), retry=retry).shuffle().bolt("sink", sink)
    spout = TextFileBatches(words, bounds=Bounds(records=_BATCH_ROWS), shares=1)
    more = {"store": InSqlite(folder / "batches.db"), "interval_s": _BATCH_S}
    skip = Skip(dead_letters=folder / "skipped.jsonl")
    lines = batches(topology, "words", spout, skip=skip, **more)
    lines.filter(_slow).group_by("text").aggregate(counted(), state=state)
    return topology


def _word(number: int) -> str:
    return f"w{number % _WORDS * (number % 2)}"


def _slow(line: Line) -> bool:
    del line
    time.sleep(_ROW_S)
    return True


def measure(topology: Topology, outage: Outage, seconds: float) -> Figures:
    """Run a topology on Ray, with an outage of `seconds`. Raises BenchmarkError if it does not
    begin to work."""
    figures: Figures = {"outage_s": seconds}
    with RayCluster() as cluster:
        run = cluster.submit(topology.graph())
        try:
            figures |= _run_outage(run, outage, seconds)
        except TopologyFailed as failed:
            return figures | {"state": f"failed: {str(failed).splitlines()[0]}"}
        finally:
            run.stop()
    return figures | _compare(int(figures["emitted"]), outage)


def _run_outage(run: RayRun, outage: Outage, seconds: float) -> Figures:
    if _wait_for_progress(run, (0, 1), _START_MAX_S) is None:
        raise BenchmarkError(f"{run.topology} has not begun to work in {_START_MAX_S:g} s")
    time.sleep(_AROUND_S)
    outage.begin()
    time.sleep(seconds)
    before = run.snapshot()
    outage.end()
    recovery_s = _wait_for_progress(run, _progress(before), _RECOVERY_MAX_S)
    time.sleep(_AROUND_S)
    run.drain()
    ended = run.wait(_DRAIN_MAX_S)
    after = run.snapshot()
    numbers, master = after.component("numbers"), after.component("$mastercoord-words")
    causes = Counter(numbers.causes) + Counter(master.causes)
    waits = {f"{task.component}: {task.health.wait.error.line}" for task in before.waiting()}
    return {
        "state": after.state if ended else f"{after.state}, not drained",
        "recovery_s": -1.0 if recovery_s is None else round(recovery_s, 2),
        "waited_for": "; ".join(sorted(waits)),
        "emitted": numbers.emitted - numbers.replayed,
        "acked": numbers.acked,
        "dead_letters": numbers.dead + after.component("words-dead-letters").acked,
        "quarantined": len(after.degraded),
        "restarts": after.restarts,
        **{f"failed, {cause}": times for cause, times in causes.items()},
    }


def _progress(snapshot: Snapshot) -> tuple[int, int]:
    """(acked numbers, the next batch to commit)."""
    txid = snapshot.figures("$mastercoord-words").get("txid", 0)
    return snapshot.component("numbers").acked, int(txid)


def _wait_for_progress(run: RayRun, before: tuple[int, int], within_s: float) -> float | None:
    """The seconds until numbers and batches have progressed; None if they have not."""
    begun_s = time.monotonic()
    while (passed_s := time.monotonic() - begun_s) < within_s:
        now = _progress(run.snapshot())
        if now[0] > before[0] and now[1] > before[1]:
            return passed_s
        time.sleep(_POLL_S)
    return None


def _compare(emitted: int, outage: Outage) -> Figures:
    """Compare what has arrived with what was emitted. The counts must be those of the first
    `rows` lines."""
    written = [*outage.written()]
    counts = {str(word): times for word, times in outage.counts().items()}
    rows = sum(counts.values())
    expected = Counter(map(_word, range(rows)))
    wrong = sum(counts.get(word, 0) != times for word, times in expected.items())
    return {
        "lost": len(set(range(emitted)) - set(written)),
        "doubled": len(written) - len(set(written)),
        "batch_rows": rows,
        "batch_counts_wrong": wrong + len(counts.keys() - expected.keys()),
    }
