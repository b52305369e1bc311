"""The ledger of one acker shard: which tuple trees are open, complete or failed; and its task.

Each spout incarnation has one dense table by slot: the XOR of all reports, and a tag that holds the
generation and four flags. A report of a newer generation reopens the slot; an older one is late and
is dropped. So memory is bounded, and late acks leave no entries behind (Storm's acker keeps a hash
map and rotates three buckets: org.apache.storm.daemon.Acker).

    empty ──any report──▶ OPEN ──start──▶ OPEN|STARTED ──xor = 0──▶ closed (complete)
                            │                  └────────fail──────▶ closed (failed)
                            └──fail──▶ OPEN|FAILED ──start────────▶ closed (failed)

Order does not matter: acks and failures may precede the start. Failed takes precedence over
complete: a tuple that a bolt failed is not done (in Storm an XOR of zero takes precedence).
benchmarks/ledger.py compares this with a dict of lists, in reports of 1,000.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sunshower.failures import Cause, Failure, FailureTexts
from sunshower.runtime.tracking.ids import (
    I64,
    NO_IDS,
    SLOTS_MAX,
    U64,
    by_incarnation,
    first_of_each,
    incarnations_of,
    is_newer,
    is_older_life,
    slots_of,
    traced_of,
)
from sunshower.runtime.tracking.reports import FailedRoots, ShardReport

# A tag: flags in the upper 8 bits, the generation in the lower 24, where `roots >> 24` has it too.
OPEN, STARTED, FAILED, USED = (np.uint32(flag << 24) for flag in (1, 2, 4, 8))  # closed: only USED
_FLAGS, _GENERATION = np.uint32(0xFF << 24), np.uint32(0xFFFFFF)
_WAITING, _CLOSED = OPEN | STARTED | USED, ~OPEN
_FIRST_SLOTS = 1024
F64 = NDArray[np.float64]


class SettledTrees(NamedTuple):
    """The roots of trees that a report completed or failed, each exactly once."""

    complete: U64
    failed: U64

    def __bool__(self) -> bool:
        return bool(len(self.complete) or len(self.failed))


NOTHING = SettledTrees(NO_IDS, NO_IDS)
_Step: TypeAlias = "Callable[[_Table, U64, U64], SettledTrees]"
# A report on a traced root: acker task, root, whether it is its start, XOR, value after it
OnTraced: TypeAlias = Callable[[int, int, bool, int, int], None]


class Ledger:
    """One shard of the topology's trees.

    Incarnation i belongs to spout task i % `spouts`. The first report of a later life of that task
    (modulo `lives_max`: see ids.py), or `begin`, removes the table of the previous life.
    `strides[k]` shards share the slots of spout task k; this shard has one slot in so many.
    `timed`: keep the time of each tree's last report, in eight more bytes a slot (`ages`).
    """

    def __init__(self, strides: Sequence[int], *, timed: bool = False) -> None:
        self.now_s = 0.0  # the time of the report being applied; used only when `timed`
        self._timed = timed
        self._strides = strides
        self._tables: dict[int, _Table] = {}
        self._newest: dict[int, int] = {}  # spout task → incarnation

    def begin(self, incarnation: int) -> None:
        """A spout task has started: reports of its previous lives are late from now on.

        Otherwise a shard without reports for half of `lives_max` starts would call the next old.
        """
        spouts = len(self._strides)
        newest = self._newest.get(incarnation % spouts, -1)
        if newest < 0 or is_older_life(newest, incarnation, spouts):
            self._tables.pop(newest, None)
            self._newest[incarnation % spouts] = incarnation

    def start(self, roots: U64, xors: U64) -> SettledTrees:
        """Spouts emitted `roots`, each with edges that XOR to `xors`. Applied once per root."""
        return self._apply(_Table.start, roots, xors)

    def ack(self, roots: U64, xors: U64) -> SettledTrees:
        """Bolts acked inputs of `roots`; see ids.py for `xors`."""
        return self._apply(_Table.ack, roots, xors)

    def fail(self, roots: U64) -> SettledTrees:
        """A part of each of `roots` cannot be processed."""
        return self._apply(_Table.fail, roots, roots)

    def ages(self, roots: U64) -> F64:
        """Return the seconds since the last report on each of `roots`, which share an incarnation.

        Infinite for unknown roots, and for attempts that newer ones have replaced.
        """
        table = self._tables.get(int(roots[0]) >> 48)
        if table is None:
            return np.full(len(roots), np.inf)
        return self.now_s - table.last_report_s(roots)

    def await_start(self, roots: U64) -> NDArray[np.bool_]:
        """Which of `roots` have failed before their start was reported; shape (n,)."""
        waits = np.zeros(len(roots), np.bool_)
        incarnations = incarnations_of(roots)
        for incarnation, table in self._tables.items():
            mine = np.flatnonzero(incarnations == incarnation)
            waits[mine] = table.await_start(roots[mine])
        return waits

    def value(self, root: int) -> int | None:
        """Return the XOR of all reports on a root; None if its slot has another one."""
        table = self._tables.get(root >> 48)
        return None if table is None else table.value(root)

    def open_count(self) -> int:
        """Return the number of trees that are started and not settled."""
        return sum(table.open_count() for table in self._tables.values())

    def bytes_per_slot(self) -> float:
        """Return the memory of all tables divided by the number of slots."""
        slots = sum(len(table.tag) for table in self._tables.values())
        return sum(table.nbytes() for table in self._tables.values()) / max(slots, 1)

    def check_invariants(self) -> None:
        """Raise AssertionError if the ledger is corrupt. Tests call it after every step."""
        for table in self._tables.values():
            table.check_invariants()

    def _apply(self, step: _Step, roots: U64, xors: U64) -> SettledTrees:
        """Apply `step` to each incarnation's table; nearly every report has only one."""
        parts = []
        for incarnation, same in by_incarnation(roots):
            table = self._tables.get(incarnation) or self._open(incarnation)
            if table is not None:
                parts.append(step(table, roots[same], xors[same]))
                if self._timed:
                    table.note_time(roots[same], self.now_s)
        if len(parts) < 2:
            return parts[0] if parts else NOTHING
        return SettledTrees(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def _open(self, incarnation: int) -> _Table | None:
        spout = incarnation % len(self._strides)
        self.begin(incarnation)
        if self._newest[spout] != incarnation:
            return None  # a report from a previous life
        table = _Table(incarnation, self._strides[spout], self._timed)
        self._tables[incarnation] = table
        return table


def _generations(roots: U64) -> NDArray[np.uint32]:
    """Return each root's generation in the lower 24 bits; above it 8 bits of its incarnation."""
    return (roots >> np.uint64(24)).astype(np.uint32)


class _Table:
    """One spout incarnation's slots in this shard: 16 bytes a slot, grown by doubling."""

    def __init__(self, incarnation: int, stride: int, timed: bool) -> None:
        self._stride = stride
        # The USED bit of `roots >> 24` XOR the tag of a used slot.
        self._used = np.uint32((incarnation & 0xFF) << 24 & USED) ^ USED
        self.xor: U64 = np.zeros(_FIRST_SLOTS, np.uint64)
        self.tag: NDArray[np.uint32] = np.zeros(_FIRST_SLOTS, np.uint32)
        self._seen: NDArray[np.int32] = np.zeros(_FIRST_SLOTS, np.int32)
        self._last_report_s: F64 = np.zeros(_FIRST_SLOTS if timed else 0)

    def start(self, roots: U64, xors: U64) -> SettledTrees:
        slots, tags = self._find(roots)
        generations = _generations(roots) & _GENERATION
        ahead = is_newer(generations, tags)
        once = first_of_each(slots, self._seen)
        if np.count_nonzero(ahead) == np.count_nonzero(once) == len(roots):
            tags = generations | _WAITING  # usual: all slots reopen; three times as fast
            self.tag[slots] = tags
            self.xor[slots] = xors
            if np.count_nonzero(xors) == len(xors):
                return NOTHING
            zero = (xors == 0).nonzero()[0]
            return SettledTrees(self._close(roots, slots, tags, zero, once=True), NO_IDS)
        roots, xors, slots, tags = self._renew(roots, xors, slots)
        apply = (tags & STARTED == 0) & first_of_each(slots, self._seen)  # x ^ x = 0: a false ack
        roots, xors, slots, tags = roots[apply], xors[apply], slots[apply], tags[apply] | STARTED
        self.xor[slots] ^= xors
        self.tag[slots] = tags
        failed = (tags & FAILED).nonzero()[0]
        zero = (self.xor.take(slots) == 0).nonzero()[0]
        failed_roots = self._close(roots, slots, tags, failed, once=True)
        complete = self._close(roots, slots, tags, zero, once=True, waiting=True)
        return SettledTrees(complete, failed_roots)

    def ack(self, roots: U64, xors: U64) -> SettledTrees:
        slots, tags = self._find(roots)
        differ = _generations(roots) ^ tags
        differ ^= self._used
        differ &= _GENERATION | USED
        if np.count_nonzero(differ):  # in the usual case all generations match
            roots, xors, slots, tags = self._renew(roots, xors, slots)
        seen = first_of_each(slots, self._seen)
        once = np.count_nonzero(seen) == len(slots)
        if once:  # three times as fast as np.bitwise_xor.at
            values = self.xor.take(slots)
            values ^= xors
            self.xor[slots] = values
        else:
            np.bitwise_xor.at(self.xor, slots, xors)
            values = self.xor.take(slots)
        if np.count_nonzero(values) == len(values):
            return NOTHING
        zero = (values == 0).nonzero()[0]  # a closed tree may reach zero again: `waiting`
        complete = self._close(roots, slots, tags, zero, once=once, waiting=True)
        return SettledTrees(complete, NO_IDS)

    def fail(self, roots: U64, xors: U64) -> SettledTrees:
        slots, _ = self._find(roots)
        roots, _, slots, tags = self._renew(roots, xors, slots)
        tags |= FAILED
        self.tag[slots] = tags
        started = (tags & STARTED).nonzero()[0]
        return SettledTrees(NO_IDS, self._close(roots, slots, tags, started, once=False))

    def note_time(self, roots: U64, now: float) -> None:
        """Note a report on these roots at `now`; late reports do not count."""
        slots, tags = self._find(roots)
        self._last_report_s[slots[(_generations(roots) ^ tags) & _GENERATION == 0]] = now

    def last_report_s(self, roots: U64) -> F64:
        """Return the time of each root's last report; minus infinity where there was none."""
        slots, tags = self._find(roots)
        known = ((_generations(roots) ^ tags) & _GENERATION == 0) & (tags & USED != 0)
        return np.where(known, self._last_report_s.take(slots), -np.inf)

    def value(self, root: int) -> int | None:
        roots = np.array([root], np.uint64)
        slots, tags = self._find(roots)
        is_same = (_generations(roots) ^ tags) & _GENERATION == 0
        return int(self.xor[slots[0]]) if is_same[0] else None

    def await_start(self, roots: U64) -> NDArray[np.bool_]:
        _, tags = self._find(roots)
        is_same = (_generations(roots) ^ tags) & _GENERATION == 0
        waits: NDArray[np.bool_] = is_same & (tags & (OPEN | STARTED | FAILED) == OPEN | FAILED)
        return waits

    def _find(self, roots: U64) -> tuple[I64, NDArray[np.uint32]]:
        """Return each root's slot in this table, and the tag stored there."""
        slots = slots_of(roots)
        if self._stride > 1:
            slots = slots // self._stride
        try:
            return slots, self.tag.take(slots)
        except IndexError:
            self._grow(int(slots.max()) + 1)
            return slots, self.tag.take(slots)

    def _renew(self, roots: U64, xors: U64, slots: I64) -> tuple[U64, U64, I64, NDArray[np.uint32]]:
        """Reopen slots for newer generations; drop reports that are late or of closed trees."""
        wanted = _generations(roots) & _GENERATION
        while True:  # more than once only if one report holds several generations of a slot
            tags = self.tag.take(slots)
            newer = (tags == 0) | is_newer(wanted, tags)
            if not newer.any():
                break
            opened = slots[newer]
            self.tag[opened] = wanted[newer] | OPEN | USED
            self.xor[opened] = 0
        keep = (tags & (_GENERATION | OPEN)) == (wanted | OPEN)
        if keep.all():
            return roots, xors, slots, tags
        return roots[keep], xors[keep], slots[keep], tags[keep]

    def _close(
        self,
        roots: U64,
        slots: I64,
        tags: NDArray[np.uint32],
        which: I64,
        *,
        once: bool,
        waiting: bool = False,
    ) -> U64:
        """Close the trees at positions `which`, and return their roots, each once.

        `once`: no slot is there twice. `waiting`: only those that are started, open and not failed.
        """
        if not len(which):
            return NO_IDS
        if waiting:
            are_waiting = tags.take(which) & _FLAGS == _WAITING
            if np.count_nonzero(are_waiting) < len(which):
                which = which[are_waiting]
        closing = slots.take(which)
        if not once:
            first = first_of_each(closing, self._seen)
            which, closing = which[first], closing[first]
        self.tag[closing] = tags.take(which) & _CLOSED
        return roots.take(which)

    def _grow(self, needed: int) -> None:
        size = len(self.tag)
        while size < needed:
            size *= 2
        for name in ("xor", "tag", "_seen"):
            old = getattr(self, name)
            new = np.zeros(size, old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)
        if len(self._last_report_s):
            self._last_report_s = np.concatenate(
                (self._last_report_s, np.zeros(size - len(self._last_report_s)))
            )

    def open_count(self) -> int:
        return int(np.count_nonzero(self.tag & (STARTED | OPEN) == STARTED | OPEN))

    def nbytes(self) -> int:
        return self.xor.nbytes + self.tag.nbytes + self._seen.nbytes + self._last_report_s.nbytes

    def check_invariants(self) -> None:
        flags = self.tag & _FLAGS
        assert len(self.tag) <= 2 * SLOTS_MAX
        assert not self.xor[flags == 0].any(), "an empty slot holds an XOR"
        assert ((flags == 0) | (flags & USED != 0)).all(), "flags on a slot that was never opened"
        waiting = flags & (STARTED | OPEN) == STARTED | OPEN
        assert (flags[waiting] & FAILED == 0).all(), "a failed and started tree is still open"
        assert self.xor[waiting].all(), "a tree is complete but still open"


# ---- acker task ----------------------------------------------------------------------------------
# Runs one acker shard: its ledger finds complete and failed trees, whose spouts get verdicts.
# Ackers send verdicts to spouts only, never to bolts (many drawings of Storm show this wrongly).

_REASONS_MAX = 1 << 16  # a crash may fail all that two spout tasks have pending
_REASONS_BYTES = 1 << 24  # of their texts


@dataclass(slots=True)
class Verdicts:
    """Verdicts for one spout task: completed trees, failed trees with reasons, requested ages."""

    complete: list[U64] = field(default_factory=list)
    failed: FailedRoots = field(default_factory=FailedRoots)
    ages: list[tuple[U64, F64]] = field(default_factory=list)  # seconds since the last report


class AckerTask:
    """A ledger, and the reasons of failures that arrived before the start of their tree."""

    def __init__(
        self,
        task: int,
        strides: Sequence[int],
        *,
        timed: bool = False,
        on_traced: OnTraced | None = None,
    ) -> None:
        """`on_traced` gets each report on a traced root: see TraceRecorder.reported."""
        self.task = task
        self._on_traced = on_traced
        self._spouts = len(strides)
        self.ledger = Ledger(strides, timed=timed)
        self.slow_s = 0.0  # the delay that an experiment adds to each report
        self._reasons: dict[int, Failure] = {}
        self._texts = FailureTexts(_REASONS_BYTES)

    def apply(self, report: ShardReport, now: float) -> dict[int, Verdicts]:
        """Apply a report received at `now`. Returns spout index (see Plan.spouts) → verdicts."""
        self.ledger.now_s = now
        verdicts: dict[int, Verdicts] = {}
        for roots, xors in report.starts:
            if (settled := self.ledger.start(roots, xors)) is not NOTHING:
                self._add_settled(settled, verdicts)
            if self._on_traced is not None:
                self._trace(roots, xors, self._on_traced, is_start=True)
        for roots, xors in report.acks:
            if (settled := self.ledger.ack(roots, xors)) is not NOTHING:
                self._add_settled(settled, verdicts)
            if self._on_traced is not None:
                self._trace(roots, xors, self._on_traced, is_start=False)
        if report.fails:
            self._fail(dict(reversed(report.fails)), verdicts)  # the first reason of each root
        for asked in report.asks:
            self._answer(asked, verdicts)
        return verdicts

    def _trace(self, roots: U64, xors: U64, on_traced: OnTraced, *, is_start: bool) -> None:
        traced = traced_of(roots)
        reported: dict[int, int] = {}
        for root, xor in zip(roots[traced].tolist(), xors[traced].tolist(), strict=True):
            reported[root] = reported.get(root, 0) ^ xor
        for root, xor in reported.items():
            if (value := self.ledger.value(root)) is not None:
                on_traced(self.task, root, is_start, xor, value)

    def _fail(self, reasons: dict[int, Failure], verdicts: dict[int, Verdicts]) -> None:
        roots = np.array(list(reasons), np.uint64)
        settled = self.ledger.fail(roots)
        for root in settled.failed.tolist():
            self._add_failed(root, reasons.pop(root), verdicts)
        if reasons:  # late, of closed trees, or before the start of their trees
            for root in roots[self.ledger.await_start(roots)].tolist():
                self._keep(root, reasons[root])

    def _keep(self, root: int, failure: Failure) -> None:
        """Keep a reason until the start of its tree is reported; the first one counts."""
        if root in self._reasons:
            return
        self._reasons[root] = failure
        for other in self._texts.add(root, failure):
            self._reasons[other] = self._reasons[other].short
        while len(self._reasons) > _REASONS_MAX:  # trees that never start
            oldest = next(iter(self._reasons))
            del self._reasons[oldest]
            self._texts.remove(oldest)

    def _answer(self, asked: U64, verdicts: dict[int, Verdicts]) -> None:
        for incarnation, same in by_incarnation(asked):
            roots = asked[same]
            answer = (roots, self.ledger.ages(roots))
            verdicts.setdefault(incarnation % self._spouts, Verdicts()).ages.append(answer)

    def _add_settled(self, settled: SettledTrees, verdicts: dict[int, Verdicts]) -> None:
        for incarnation, same in by_incarnation(settled.complete):
            verdict = verdicts.setdefault(incarnation % self._spouts, Verdicts())
            verdict.complete.append(settled.complete[same])
        for root in settled.failed.tolist():
            self._texts.remove(root)
            self._add_failed(root, self._reasons.pop(root, Failure(Cause.FAILED)), verdicts)

    def _add_failed(self, root: int, reason: Failure, verdicts: dict[int, Verdicts]) -> None:
        spout = (root >> 48) % self._spouts
        verdicts.setdefault(spout, Verdicts()).failed.add([(root, reason)])
