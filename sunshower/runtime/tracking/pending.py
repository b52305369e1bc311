"""A spout task's pending table: its open trees, their deadlines, and how many there may be.

There is one slot per root with its deadline, attempt and record.

The oldest free slot is used first: last-in-first-out would run one slot through its 2²⁴ generations
within hours, and a late report could then match a newer root. Deadlines are exact: a root fails at
the first check after its deadline (Storm's two rotating buckets fail it between one and two
timeouts: org.apache.storm.executor.spout.SpoutExecutor).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sunshower.config import Config
from sunshower.failures import Cause, Failure
from sunshower.runtime.tracking.ids import (
    I64,
    NO_IDS,
    U64,
    first_of_each,
    generations_of,
    incarnations_of,
    make_roots,
    next_generations,
    slots_of,
)
from sunshower.runtime.tracking.reports import Reports

F64 = NDArray[np.float64]
Tables: TypeAlias = tuple[NDArray[np.uint32], I64]  # generations and numbers, by slot
_NEVER = np.inf
_FIRST_SLOTS = 1024


class Released(NamedTuple):
    """Roots that were released; every array has shape (n,)."""

    roots: U64
    payloads: NDArray[np.object_]  # what `take` received for each: records, or emissions
    numbers: I64  # likewise: the position of each in its source
    attempts: NDArray[np.uint32]  # 1 = emitted for the first time
    emitted_s: F64


class Pending:
    """The pending table of one incarnation of one spout task: 52 bytes a slot, and the records."""

    def __init__(self, incarnation: int, slots: int, tables: Tables | None = None) -> None:
        """The table grows up to `slots` as needed. `tables`: zeroed arrays of that size for the
        generations and numbers (see flight_recorder.py)."""
        self.incarnation = incarnation
        self.limit = slots  # how many may be pending: at most `slots`
        self._slots_max, slots = slots, min(slots, _FIRST_SLOTS)
        self._free = np.arange(slots, dtype=np.int64)  # a ring: `_head` is the oldest free slot
        self._head = 0
        self._slots = self._free_count = slots
        self._all_tables = tables
        tables = tables or (np.zeros(slots, np.uint32), np.zeros(slots, np.int64))
        self._generation, self._number = tables[0][:slots], tables[1][:slots]
        self._deadline_s = np.full(slots, _NEVER)
        self._emitted_s = np.zeros(slots)
        self._attempt = np.zeros(slots, np.uint32)
        self._payload = np.empty(slots, np.object_)
        self._seen = np.zeros(slots, np.int32)
        self.next_deadline_s = _NEVER  # no root fails before; may be too early, never too late

    def __len__(self) -> int:
        return self._slots - self._free_count

    @property
    def room(self) -> int:
        """How many more roots may be taken under the limit."""
        return max(0, self.limit - self._slots + self._free_count)

    @property
    def free(self) -> int:
        """How many slots are free, whatever the limit."""
        return self._slots_max - len(self)

    def take(
        self,
        payloads: Sequence[Any],
        numbers: Sequence[int] | I64,
        attempts: Sequence[int] | int,
        now: float,
        timeout_s: float,
        traced: Sequence[int] = (),
    ) -> U64:
        """Return new roots for `payloads`, at most `room` of them, due `timeout_s` after `now`.

        `traced`: the positions of those whose trees are traced.
        """
        count = len(payloads)
        if count > self._free_count:
            assert count <= self.free, f"{count} roots taken, but {self.free} are free"
            self._grow(len(self) + count)
        slots = self._free.take(np.arange(self._head, self._head + count), mode="wrap")
        self._head = (self._head + count) % self._slots
        self._free_count -= count
        generations = self._generation.take(slots)
        next_generations(generations, traced)
        self._generation[slots] = generations
        self._deadline_s[slots] = now + timeout_s
        self._emitted_s[slots] = now
        self._attempt[slots] = attempts
        self._number[slots] = numbers
        self._payload[slots] = np.fromiter(payloads, np.object_, count)
        self.next_deadline_s = min(self.next_deadline_s, now + timeout_s)
        return make_roots(self.incarnation, generations, slots)

    def _grow(self, needed: int) -> None:
        """Grow the table for `needed` roots; free slots keep their order."""
        old, size = self._slots, self._slots
        while size < needed:
            size *= 2
        size = min(size, self._slots_max)
        ring = np.arange(self._head, self._head + self._free_count)
        free = np.concatenate((self._free.take(ring, mode="wrap"), np.arange(old, size)))
        self._free = np.zeros(size, np.int64)
        self._free[: len(free)] = free
        self._head, self._free_count, self._slots = 0, len(free), size
        if self._all_tables is not None:
            generations, numbers = self._all_tables
            self._generation, self._number = generations[:size], numbers[:size]
        else:
            self._generation = _grown(self._generation, size, 0)
            self._number = _grown(self._number, size, 0)
        self._deadline_s = _grown(self._deadline_s, size, _NEVER)
        self._emitted_s = _grown(self._emitted_s, size, 0.0)
        self._attempt = _grown(self._attempt, size, 0)
        self._payload = _grown(self._payload, size, None)
        self._seen = _grown(self._seen, size, 0)

    def release(self, roots: U64) -> Released:
        """Release those of `roots` that are pending; ignore late, foreign and repeated ones."""
        roots = self._still_pending(roots)
        slots = slots_of(roots)
        count = len(slots)
        payloads = self._payload.take(slots)
        released = Released(
            roots,
            payloads,
            self._number.take(slots),
            self._attempt.take(slots),
            self._emitted_s.take(slots),
        )
        self._payload[slots] = None
        self._deadline_s[slots] = _NEVER
        tail = self._head + self._free_count
        self._free.put(np.arange(tail, tail + count), slots, mode="wrap")
        self._free_count += count
        return released

    def expired(self, now: float) -> U64:
        """Return the roots whose deadline has come. They stay pending until released."""
        if now < self.next_deadline_s:
            return NO_IDS
        due = np.flatnonzero(self._deadline_s <= now)
        later = self._deadline_s[self._deadline_s > now]
        self.next_deadline_s = float(later.min()) if len(later) else _NEVER
        return make_roots(self.incarnation, self._generation[due], due)

    def postpone(self, roots: U64, deadline_s: float | F64) -> None:
        """Set the deadline of those of `roots` that are pending: one for all, or one for each.

        With one for each, all of `roots` must be pending, and each stand there once.
        """
        roots = self._still_pending(roots)
        if len(roots):
            self._deadline_s[slots_of(roots)] = deadline_s
            self.next_deadline_s = min(self.next_deadline_s, float(np.min(deadline_s)))

    def shift(self, seconds: float) -> None:
        """Move every deadline by `seconds`."""
        self._deadline_s += seconds  # those of free slots stay infinite
        self.next_deadline_s += seconds

    def emitted_s(self, roots: U64) -> F64:
        """Return the emit time of each of `roots`, all of which must be pending."""
        return self._emitted_s.take(slots_of(roots))

    def oldest_s(self, now: float) -> float | None:
        """How long ago the oldest pending root was taken; None: none is pending."""
        if not len(self):
            return None
        taken_s = self._emitted_s[self._deadline_s < _NEVER]
        return now - float(taken_s.min()) if len(taken_s) else None

    def payload_of(self, root: int) -> Any:
        """Return what `take` received for a pending root."""
        return self._payload[slots_of(np.array([root], np.uint64))[0]]

    def live(self, roots: U64) -> U64:
        """Return those of `roots` that are pending, each once."""
        return self._still_pending(roots)

    def all_roots(self) -> U64:
        """Return every pending root."""
        slots = np.flatnonzero(self._deadline_s < _NEVER)
        return make_roots(self.incarnation, self._generation[slots], slots)

    def within(self, first: int, end: int) -> U64:
        """Return every pending root with a number in [first, end). Scans every slot."""
        mine = (self._number >= first) & (self._number < end) & (self._deadline_s < _NEVER)
        slots = np.flatnonzero(mine)
        return make_roots(self.incarnation, self._generation[slots], slots)

    def lowest_number(self, otherwise: int) -> int:
        """Return the lowest pending number from 0 on. Scans every slot: call it only a few times a
        second."""
        if not len(self):
            return otherwise
        numbers = self._number[self._deadline_s < _NEVER]
        return int(numbers[numbers >= 0].min(initial=otherwise))

    def numbers(self) -> I64:
        """Return the number of each pending root. Scans every slot."""
        return self._number[self._deadline_s < _NEVER]

    def only_pending(self, values: NDArray[Any]) -> list[Any]:
        """Return those of `values`, by slot, of the pending roots."""
        count = min(len(values), self._slots)
        pending: list[Any] = values[:count][self._deadline_s[:count] < _NEVER].tolist()
        return pending

    def _still_pending(self, roots: U64) -> U64:
        mine = incarnations_of(roots) == self.incarnation
        if np.count_nonzero(mine) < len(roots):
            roots = roots[mine]
        slots = slots_of(roots)
        try:
            generations = self._generation.take(slots)
        except IndexError:  # a packet that is corrupt in spite of its checksum
            roots = roots[slots < len(self._generation)]
            slots = slots_of(roots)
            generations = self._generation.take(slots)
        live = generations == generations_of(roots)
        live &= self._deadline_s.take(slots) < _NEVER
        if np.count_nonzero(live) < len(roots):
            roots, slots = roots[live], slots[live]
        once = first_of_each(slots, self._seen)
        return roots if np.count_nonzero(once) == len(roots) else roots[once]

    def bytes_per_slot(self) -> float:
        """Return the memory of the table divided by its slots, without the records."""
        arrays = (value for value in vars(self).values() if isinstance(value, np.ndarray))
        return sum(array.nbytes for array in arrays) / self._slots

    def check_invariants(self) -> None:
        """Raise AssertionError if the table is corrupt. Tests call it after every step."""
        ring = np.arange(self._head, self._head + self._free_count)
        free = self._free.take(ring, mode="wrap")
        assert np.bincount(free, minlength=1).max() <= 1, "a slot is free twice"
        assert (self._deadline_s[free] == _NEVER).all(), "a free slot has a deadline"
        assert np.count_nonzero(self._deadline_s < _NEVER) == len(self), "a pending slot is free"
        empty = self._payload[free].tolist().count(None)
        assert empty == self._free_count, "a free slot holds a record"


def _grown(old: NDArray[Any], size: int, fill: Any) -> NDArray[Any]:
    """Return a copy extended to `size`."""
    new = np.full(size, fill, old.dtype)
    new[: len(old)] = old
    return new


# ---- progress deadlines --------------------------------------------------------------------------
# Progress deadlines: a tree stays pending while reports on it arrive, up to a hard maximum.
#
# The trees of records have one if `message_timeout_max_s` is set; those of watermarks always,
# without a maximum, because they may have all rows of many windows. Ackers do not report the
# progress of young trees to spouts: that would cost a message for each report. When a deadline
# comes, the spout asks the acker shard for the tree's age (the time since the last report on it),
# and moves the deadline:
#
#     due ──asked──▶ waiting for the answer ──an age──▶ now − age + timeout, at most emit + max
#              ▲            │                              └── is over: TIMEOUT
#              │            ├── none within sweep_grace_s (a packet was lost): asked again
#              └────────────┘
#                           └── emit + max is over: TIMEOUT
#
# So a tree without progress fails one round trip after its deadline. A lost question or answer
# costs sweep_grace_s; only an answer, or emit + max, fails a tree. A sweep fails the trees of a
# crashed shard (Deadlines). Packets carry ages, not times, because the clocks of two machines
# differ. Storm only has resetTimeout, which here too gives a full timeout again, whatever the
# maximum.


class ProgressDeadline:
    """The spout's side: chooses the overdue trees to ask about, and applies the answers."""

    def __init__(self, config: Config) -> None:
        self._timeout_s = config.message_timeout_s
        self._grace_s = config.internals.sweep_grace_s
        self._max_s = config.message_timeout_max_s or config.message_timeout_s
        self.unlimited = NO_IDS  # trees without a maximum
        self._asked = NO_IDS
        self._holds: list[tuple[float, float]] = []  # periods in which deadlines were stopped

    def held(self, from_s: float, to_s: float) -> None:
        """Deadlines were stopped: that period does not count for any tree."""
        ends = np.array([end for _, end in self._holds])
        matters = self._after(ends, self._max_s) > from_s  # to a tree that is pending now
        self._holds = [
            hold for hold, still_matters in zip(self._holds, matters, strict=True) if still_matters
        ]
        self._holds.append((from_s, to_s))

    def _ends_s(self, pending: Pending, roots: U64) -> F64:
        ends_s = self._after(pending.emitted_s(roots), self._max_s)
        ends_s[np.isin(roots, self.unlimited)] = np.inf
        return ends_s

    def _after(self, since_s: F64, seconds: float) -> F64:
        """`seconds` after `since_s`, not counting the periods in which deadlines were stopped."""
        held_s = np.zeros(len(since_s))
        for from_s, to_s in self._holds:
            held_s += np.maximum(0.0, to_s - np.maximum(from_s, since_s))
        return since_s + seconds + held_s

    def overdue(self, pending: Pending, due: U64, now: float) -> tuple[U64, U64]:
        """Split the trees whose deadline has come into (failed, to ask about).

        A tree whose question was not answered is asked about again.
        """
        ends_s = self._ends_s(pending, due)
        over = ends_s <= now
        asking = due[~over]
        self._forget(due)
        self._asked = np.concatenate((pending.live(self._asked), asking))
        pending.postpone(asking, np.minimum(now + self._grace_s, ends_s[~over]))
        return due[over], asking

    def heard(self, pending: Pending, roots: U64, ages_s: F64, now: float) -> U64:
        """Apply an acker's answer (∞: an unknown tree). Returns the trees that have failed.

        Answers that are no longer expected are ignored. An acker that was away answers at once what
        it was asked again and again: of each tree the last answer counts.
        """
        _, from_end = np.unique(roots[::-1], return_index=True)
        last = np.sort(len(roots) - 1 - from_end)
        roots, ages_s = roots[last], ages_s[last]
        waiting = np.isin(roots, pending.live(self._asked))
        roots, ages_s = roots[waiting], ages_s[waiting]
        self._forget(roots)
        deadlines_s = np.minimum(
            self._after(now - ages_s, self._timeout_s), self._ends_s(pending, roots)
        )
        lives = deadlines_s > now
        pending.postpone(roots[lives], deadlines_s[lives])
        return roots[~lives]

    def postponed(self, roots: U64) -> None:
        """Ignore answers for these trees, which were given more time."""
        self._forget(roots)

    def _forget(self, roots: U64) -> None:
        self._asked = self._asked[~np.isin(self._asked, roots)]


# ---- deadlines -----------------------------------------------------------------------------------

# The deadlines of one spout task: overdue trees, and trees that a crash may have affected.
#
# A tree has `message_timeout_s`; with a progress deadline (ProgressDeadline), the acker is
# asked first. Trees that a crash may have affected fail if they are still pending after a grace
# period. Deadlines stop while a downstream component waits for a dependency: an outage of ten
# minutes must not count as a timeout.


@dataclass(frozen=True, slots=True)
class Sweep:
    """Of `roots`, those still pending at `due_s` have failed."""

    due_s: float
    roots: U64
    failure: Failure


class Deadlines:
    """Finds overdue trees in `pending`; the caller releases them."""

    def __init__(self, config: Config, pending: Pending, reports: Reports) -> None:
        self._config = config
        self._pending = pending
        self._reports = reports
        self._sweeps: list[Sweep] = []  # not due yet
        self._held_s: float | None = None  # the time at which deadlines stopped
        self.slowest = ""  # the master's description of where tuples wait longest
        self._progress = ProgressDeadline(config)

    @property
    def next_s(self) -> float:
        """The time of the next deadline or sweep."""
        due_s = inf if self.held else self._pending.next_deadline_s
        return min([due_s, *(sweep.due_s for sweep in self._sweeps)]) if self._sweeps else due_s

    @property
    def held(self) -> bool:
        """Whether deadlines are stopped."""
        return self._held_s is not None

    def hold(self, held: bool, now: float) -> None:
        """Stop the deadlines, or resume them."""
        if held and self._held_s is None:
            self._held_s = now
        elif not held and self._held_s is not None:
            self._pending.shift(now - self._held_s)
            self._progress.held(self._held_s, now)
            self._held_s = None

    def stopped_for(self, seconds: float, now: float) -> None:
        """This process was stopped: verdicts that arrived meanwhile are not read yet."""
        self._sweeps = [replace(sweep, due_s=sweep.due_s + seconds) for sweep in self._sweeps]
        if not self.held:
            self.hold(True, now - seconds)
            self.hold(False, now)

    def overdue(self, now: float) -> U64:
        """Return the trees that have timed out by `now`; ask the ackers about others."""
        if self.held:
            return NO_IDS
        due = self._pending.expired(now)
        if len(due):
            due, asking = self._progress.overdue(self._pending, due, now)
            self._reports.ask(asking)
        return due

    def heard_of(self, roots: U64, ages_s: F64, now: float) -> U64:
        """Apply an acker's answer about ages; return the trees that have failed."""
        return self._progress.heard(self._pending, roots, ages_s, now)

    def postpone(self, roots: U64, now: float) -> None:
        """Give these trees a full timeout again."""
        self._pending.postpone(roots, now + self._config.message_timeout_s)
        self._progress.postponed(roots)

    def extend(self, roots: U64) -> None:
        """These trees, and no others, may be pending as long as they make progress."""
        self._progress.unlimited = roots

    def sweep(self, now: float, failure: Failure, residues: set[int] | None, stride: int) -> None:
        """Start a grace period for the trees pending now; see SpoutTask.sweep."""
        roots = self._pending.all_roots()
        if residues is not None:
            roots = roots[np.isin(slots_of(roots) % stride, sorted(residues))]
        if len(roots):
            self._sweeps.append(Sweep(now + self._config.internals.sweep_grace_s, roots, failure))

    def ripe(self, now: float) -> list[Sweep]:
        """Return each sweep whose grace period is over, once."""
        ripe = [sweep for sweep in self._sweeps if sweep.due_s <= now]
        if ripe:
            self._sweeps = [sweep for sweep in self._sweeps if sweep.due_s > now]
        return ripe

    def missed(self, what: str) -> Failure:
        """The failure of trees without `what` in time: a "verdict", or "progress"."""
        limit_s = self._config.message_timeout_s
        if what == "verdict":
            limit_s = self._config.message_timeout_max_s or limit_s
        reason = f"no {what} within {limit_s:g} s"
        if self.slowest:
            reason = f"{reason}; {self.slowest}"
        return Failure(Cause.TIMEOUT, reason=reason)


# ---- congestion control --------------------------------------------------------------------------
# Limits the open trees of a spout task.
#
# Adaptive max pending is congestion control: the limit grows additively and shrinks
# multiplicatively, once per round trip (complete latency):
#
#   limit reached, queueing delay within the allowed delay        × 2 to 16 at first; after a cut
#                                                                 + a 64th, a 32nd, ... at most × 2
#   limit reached, nothing completes, and a bolt may keep tuples  doubled, each `window_s`
#   delay too long, but the previous limit had a lower rate       as if the delay were allowed
#   delay too long, but as many trees have lately been quicker    as if the delay were allowed
#   delay too long, or the latency above a quarter of the timeout limit × 7/8
#   a timeout                                                     limit ÷ 2, once per timeout
#   the least latency is 30 s old                                 limit ÷ 2 for one round, to probe
#
# The step is a fraction: a fixed step that suits 20 open trees would need hours to reach 20,000. It
# doubles each round trip until the next cut: with a 64th each time, 64 to 20,000 open trees took
# 407 round trips, and take 14. A delay is not the queue of these trees if as many were clearly
# quicker since the last probe. (On a busy machine processes wait for their turn, however few trees
# are open. When that cut the limit, 50,000 records took 250 s instead of 10.)
# (Where a bolt collects tuples for one commit, more of them take longer, but more complete a
# second.) The queueing delay of a tree is its latency minus the least latency seen lately. Allowed
# are `window_s`, or half of the least latency where that is longer. The probe in the last line
# keeps the least latency true: otherwise a permanent queue would count as part of it. A limit that
# is not reached stays as it is, because something else limits the spout. The limit is at least
# two, so that one tree is processed while the other is acked, and one where the latency is above a
# quarter of the timeout. A bolt with execute() may wait for more tuples before it acks any, so the
# limit must then grow. Sources: TCP (RFC 5681), LEDBAT (RFC 6817, a delay target), BBR (probes for
# the least latency). Storm has only the fixed number, max.spout.pending.

_FIRST = 1  # one tree may be many seconds of work
_LEAST = 2
_STEPS = 64
_JUMP_MAX = 16.0
_PROBE_S = 30.0
_CLEARLY = 0.5  # of the latency allowed: trees behind a queue that still grows are too quick
_QUICK_MAX = 2.0  # some trees show nothing of more than twice as many
_PART_OF_TIMEOUT = 0.25  # the latency should stay below this fraction of the timeout
_GAIN = 0.25  # the fraction of the limit's growth that the rate must gain, where nothing queues
_PART_OF_LATENCY = 0.5  # the queueing delay allowed where the least latency is long


class CongestionControl:
    """The limit of one spout task, between 1 and `limit_max`."""

    def __init__(self, config: Config, limit_max: int) -> None:
        self.limit = _FIRST
        self._limit_max = limit_max
        self._timeout_s = config.message_timeout_s
        self._wait_s = config.internals.window_s
        self._threshold = limit_max  # below it the limit doubles; above it it grows in steps
        self._step = 0.0  # the last one since a cut, as a fraction of the limit
        self._quick = 0.0  # the most trees that were clearly within the allowed delay since a probe
        self._least_s = inf  # the least latency, and the time it was seen
        self._least_at_s = 0.0
        self._judged_s = -inf
        self._cut_again_s = -inf
        self._sum_s, self._count, self._reached = 0.0, 0, False  # since the last adjustment
        self._rates: dict[int, tuple[int, float]] = {}  # bit length → (limit, trees a second)

    def completed(self, now: float, count: int, latency_s: float, reached: bool) -> None:
        """`count` trees completed with a mean latency of `latency_s`.

        `reached`: whether the limit was reached before they completed.
        """
        if now - latency_s < self._judged_s:
            return  # emitted under the previous limit
        if latency_s <= self._least_s:
            self._least_s, self._least_at_s = latency_s, now
        self._sum_s += latency_s * count
        self._count += count
        self._reached |= reached
        if self._count >= self.limit // 2:
            self._judge(now, self._sum_s / self._count)
            self._judged_s = now
            self._sum_s, self._count, self._reached = 0.0, 0, False

    def stalled(self) -> None:
        """Raise the limit, because a bolt may keep the open tuples until it has more."""
        self.limit = min(2 * self.limit, self._limit_max)

    def timed_out(self, now: float) -> None:
        """Some trees timed out. Trees emitted before a cut do not cause another one."""
        if now >= self._cut_again_s:
            self._cut_again_s, self._quick = now + self._timeout_s, 0.0
            self._shrink(0.5, least=1)

    def _judge(self, now: float, latency_s: float) -> None:
        allowed_s = max(self._wait_s, self._least_s * _PART_OF_LATENCY)
        gains = self._reached and self._gains(latency_s)
        if self._reached:
            times = _CLEARLY * (self._least_s + allowed_s) / max(latency_s, 1e-6)
            self._quick = max(self._quick, self.limit * min(times, _QUICK_MAX))
        if latency_s > self._timeout_s * _PART_OF_TIMEOUT:
            self._shrink(7 / 8, least=1)
        elif latency_s - self._least_s > allowed_s and self.limit > self._quick and not gains:
            self._shrink(7 / 8)
        elif self._reached:
            doubling = self.limit < self._threshold
            if doubling:  # if trees ran one after the other, each would wait `allowed_s`
                step = self.limit * int(
                    min(max(allowed_s / max(latency_s, 1e-6), 2.0), _JUMP_MAX) - 1
                )
            else:
                self._step = min(max(2 * self._step, 1 / _STEPS), 1.0)
                step = max(1, int(self.limit * self._step))
            ceiling = self._threshold if doubling else self._limit_max
            self.limit = min(self.limit + step, ceiling)
        if now - self._least_at_s > _PROBE_S:
            self._least_s, self._least_at_s, self._quick = inf, now, 0.0
            level = self.limit
            self._shrink(0.5)
            self._threshold = level  # returns at once, unless the latency itself has grown

    def _gains(self, latency_s: float) -> bool:
        """Whether this limit completes clearly more trees a second than the last measured limit of
        about half its size."""
        level, rate = self.limit.bit_length(), self.limit / max(latency_s, 1e-6)
        self._rates[level] = (self.limit, rate)
        half, half_rate = self._rates.get(level - 1, (0, 0.0))
        return half > 0 and rate / half_rate - 1 > _GAIN * (self.limit / half - 1)

    def _shrink(self, factor: float, least: int = _LEAST) -> None:
        self.limit = max(min(least, self.limit), int(self.limit * factor))
        self._threshold, self._step = self.limit, 0.0


class PendingLimit:
    """Sets `pending.limit`: constant if Config.spout_pending is a number, else as CongestionControl
    says."""

    def __init__(self, config: Config, pending: Pending) -> None:
        self.may_be_held = False  # a bolt downstream may keep tuples before it acks any
        self._config = config
        self._pending = pending
        self.moved_s = 0.0  # when a tree was last opened or completed
        self._congestion: CongestionControl | None = None
        self.adapts = config.spout_pending == "auto"  # whether congestion control sets the limit
        if self.adapts:
            self._congestion = CongestionControl(config, config.spout_slots)
            pending.limit = self._congestion.limit

    def lift(self) -> None:
        """Remove the limit: the spout decides by itself how many trees are open."""
        self._congestion, self.adapts = None, False
        self._pending.limit = self._config.spout_slots

    def completed(self, now: float, latencies_s: F64, *, reached: bool) -> None:
        """Trees completed; `reached`: whether the limit was reached before they did."""
        self.moved_s = now
        if self._congestion is not None and len(latencies_s):
            mean_s = float(latencies_s.mean())
            self._congestion.completed(now, len(latencies_s), mean_s, reached)
            self._pending.limit = self._congestion.limit

    def timed_out(self, now: float) -> None:
        """Some trees timed out."""
        if self._congestion is not None:
            self._congestion.timed_out(now)
            self._pending.limit = self._congestion.limit

    def stalls_s(self, *, is_blocked: bool) -> float:
        """Return when to call `look` if no tree is opened or completed before; ∞ for never.

        `is_blocked`: the receivers have no credit, so more open trees would not help.
        """
        if self._congestion is None or not self.may_be_held or self._pending.room or is_blocked:
            return inf
        return self.moved_s + self._config.internals.window_s

    def look(self, now: float, *, is_blocked: bool) -> None:
        """Raise the limit where a bolt seems to wait for more tuples before it acks any."""
        if self._congestion is not None and now >= self.stalls_s(is_blocked=is_blocked):
            self._congestion.stalled()
            self.moved_s = now
            self._pending.limit = self._congestion.limit
