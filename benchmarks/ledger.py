"""Compares the ledger of an acker shard with a dictionary, and measures the bytes of a slot.

Both get the same reports of 1,000 entries: for each tree its start and two acks. 16,000 trees are
open at a time, half of the default limit of a spout task. A report has the form of a packet: two
buffers of raw 64-bit integers. The answer is a buffer of the roots that are complete.
    in-order   16 reports of starts, then the acks of all roots in the order of their starts, twice
    mixed      the acks in random order, and the reports too: a start may come last
"""

from __future__ import annotations

import gc
import time
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.figures import Key, Ratio
from benchmarks.measure import BenchmarkError, Comparison, Entry, Outcome, Sample
from sunshower.config import Config
from sunshower.runtime.tracking.ids import U64, EdgeIds
from sunshower.runtime.tracking.ledger import Ledger
from sunshower.runtime.tracking.pending import Pending

REPORT = 1_000  # entries
_SLOTS = Config().spout_slots  # a spout task's, by default
_OPEN = 16 * REPORT  # trees
MILLION = 1e6

_UNIT = "M updates/s"

Report = tuple[str, bytes, bytes]  # "start" or "ack", roots, xors


def comparison(windows: int) -> Comparison:
    """Updates per second of both, in both orders."""
    entries, ratios = [], []
    for order in ("in-order", "mixed"):
        reports = _reports(windows, order)
        ours, dicts = (Key("ledger", system, order, _UNIT) for system in ("sunshower", "dict"))
        entries.append(Entry(ours, partial(_run, _apply_ours, Ledger, reports)))
        entries.append(Entry(dicts, partial(_run, _apply_dict, DictLedger, reports)))
        ratios.append(Ratio(f"ledger/{order}/dict", ours, dicts))
    slot = Key("ledger", "sunshower", "memory", "bytes a slot")
    return Comparison("ledger", [*entries, Entry(slot, _bytes_per_slot)], ratios)


class DictLedger:
    """root → [xor, started, failed]: the simplest implementation."""

    def __init__(self, strides: Any) -> None:
        self._trees: dict[int, list[Any]] = {}

    def start(self, roots: list[int], xors: list[int]) -> tuple[list[int], list[int]]:
        trees, complete, failed = self._trees, [], []
        for root, xor in zip(roots, xors, strict=True):
            tree = trees.get(root)
            if tree is None:
                trees[root] = [xor, True, False]
                continue
            tree[0] ^= xor
            tree[1] = True
            if tree[2]:
                failed.append(root)
                del trees[root]
            elif not tree[0]:
                complete.append(root)
                del trees[root]
        return complete, failed

    def ack(self, roots: list[int], xors: list[int]) -> tuple[list[int], list[int]]:
        trees, complete = self._trees, []
        for root, xor in zip(roots, xors, strict=True):
            tree = trees.get(root)
            if tree is None:
                trees[root] = [xor, False, False]
                continue
            tree[0] ^= xor
            if not tree[0] and tree[1]:
                complete.append(root)
                del trees[root]
        return complete, []


def _reports(windows: int, order: str) -> list[Report]:
    """The reports of `windows` times 16,000 trees, with two edges each."""
    generator = np.random.default_rng(7)
    pending = Pending(1, _SLOTS)
    edges = EdgeIds(generator)
    collected: list[Report] = []
    for _ in range(windows):
        roots: U64 = pending.take([None] * _OPEN, np.arange(_OPEN), 1, 0.0, 1.0)
        pending.release(roots)
        first, second = edges.draw(_OPEN), edges.draw(_OPEN)
        acked, xors = np.concatenate([roots, roots]), np.concatenate([first, second])
        if order == "mixed":
            places = generator.permutation(len(acked))
            acked, xors = acked[places], xors[places]
        reports = [*_cut("start", roots, first ^ second), *_cut("ack", acked, xors)]
        if order == "mixed":
            reports = [reports[place] for place in generator.permutation(len(reports))]
        collected += reports
    return collected


def _cut(what: str, roots: U64, xors: U64) -> list[Report]:
    return [
        (what, roots[at : at + REPORT].tobytes(), xors[at : at + REPORT].tobytes())
        for at in range(0, len(roots), REPORT)
    ]


def _apply_ours(ledger: Ledger, what: str, roots: bytes, xors: bytes) -> bytes:
    apply = ledger.start if what == "start" else ledger.ack
    return apply(np.frombuffer(roots, np.uint64), np.frombuffer(xors, np.uint64)).complete.tobytes()


def _apply_dict(ledger: DictLedger, what: str, roots: bytes, xors: bytes) -> bytes:
    apply = ledger.start if what == "start" else ledger.ack
    complete, _ = apply(memoryview(roots).cast("Q").tolist(), memoryview(xors).cast("Q").tolist())
    return array("Q", complete).tobytes()


def _run(
    apply: Callable[[Any, str, bytes, bytes], bytes],
    kind: Callable[[Sequence[int]], Any],
    reports: list[Report],
) -> Sample:
    gc.collect()  # the settings of a worker, where garbage is rarely collected
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)
    ledger = kind([1])
    begun_s = time.process_time()  # one thread without waiting: other processes matter less
    complete = sum(len(apply(ledger, *report)) for report in reports) // 8
    ended_s = time.process_time()
    if complete * 3 != len(reports) * REPORT:
        raise BenchmarkError(f"{complete:,} trees of {len(reports) * REPORT // 3:,} are complete")
    return Outcome(begun_s, ended_s, complete * 3).sample(MILLION)


def _bytes_per_slot() -> Sample:
    ledger = Ledger([1])
    for report in _reports(2 * _SLOTS // _OPEN + 1, "in-order"):
        _apply_ours(ledger, *report)
    return Sample(ledger.bytes_per_slot())
