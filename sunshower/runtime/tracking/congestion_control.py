"""Limits the open trees of a spout task; separate because it is an algorithm of its own.

Adaptive max pending is congestion control: the limit grows additively and shrinks multiplicatively,
once per round trip (complete latency):

    limit reached, queueing delay within the allowed delay        limit + a 64th; × 2 to 16 at first
    limit reached, nothing completes, and a bolt may keep tuples  doubled, each `window_s`
    delay too long, but the previous limit had a lower rate       as if the delay were allowed
    delay too long, or the latency above a quarter of the timeout limit × 7/8
    a timeout                                                     limit ÷ 2, once per timeout
    the least latency is 30 s old                                 limit ÷ 2 for one round, to probe

The step is a fraction: a fixed step that suits 20 open trees would need hours to reach 20,000.
(Where a bolt collects tuples for one commit, more of them take longer, but more complete a second.)
The queueing delay of a tree is its latency minus the least latency seen lately. Allowed are
`window_s`, or half of the least latency where that is longer. The probe in the last line keeps the
least latency true: otherwise a permanent queue would count as part of it. A limit that is not
reached stays as it is, because something else limits the spout. The limit is at least two, so that
one tree is processed while the other is acked, and one where the latency is above a quarter of the
timeout. A bolt with execute() may wait for more tuples before it acks any, so the limit must then
grow. Sources: TCP (RFC 5681), LEDBAT (RFC 6817, a delay target), BBR (probes for the least
latency). Storm has only the fixed number, max.spout.pending.
"""

from __future__ import annotations

from math import inf

from sunshower.config import Config
from sunshower.runtime.tracking.pending import F64, Pending

_FIRST = 1  # one tree may be many seconds of work
_LEAST = 2
_STEPS = 64
_JUMP_MAX = 16.0
_PROBE_S = 30.0
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
            self._cut_again_s = now + self._timeout_s
            self._shrink(0.5, least=1)

    def _judge(self, now: float, latency_s: float) -> None:
        allowed_s = max(self._wait_s, self._least_s * _PART_OF_LATENCY)
        gains = self._reached and self._gains(latency_s)
        if latency_s > self._timeout_s * _PART_OF_TIMEOUT:
            self._shrink(7 / 8, least=1)
        elif latency_s - self._least_s > allowed_s and not gains:
            self._shrink(7 / 8)
        elif self._reached:
            doubling = self.limit < self._threshold
            if doubling:  # if trees ran one after the other, each would wait `allowed_s`
                step = self.limit * int(
                    min(max(allowed_s / max(latency_s, 1e-6), 2.0), _JUMP_MAX) - 1
                )
            else:
                step = max(1, self.limit // _STEPS)
            ceiling = self._threshold if doubling else self._limit_max
            self.limit = min(self.limit + step, ceiling)
        if now - self._least_at_s > _PROBE_S:
            self._least_s, self._least_at_s = inf, now
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
        self._threshold = self.limit


class PendingLimit:
    """Sets `pending.limit`: constant if Config.spout_pending is a number, else as CongestionControl
    says."""

    def __init__(self, config: Config, pending: Pending) -> None:
        self.may_be_held = False  # a bolt downstream may keep tuples before it acks any
        self._config = config
        self._pending = pending
        self._moved_s = 0.0  # when a tree was last opened or completed
        self._congestion: CongestionControl | None = None
        self.adapts = config.spout_pending == "auto"  # whether congestion control sets the limit
        if self.adapts:
            self._congestion = CongestionControl(config, config.spout_slots)
            pending.limit = self._congestion.limit

    def lift(self) -> None:
        """Remove the limit: the spout decides by itself how many trees are open."""
        self._congestion, self.adapts = None, False
        self._pending.limit = self._config.spout_slots

    def opened(self, now: float) -> None:
        """Trees were opened."""
        self._moved_s = now

    def completed(self, now: float, latencies_s: F64, *, reached: bool) -> None:
        """Trees completed; `reached`: whether the limit was reached before they did."""
        self._moved_s = now
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
        return self._moved_s + self._config.internals.window_s

    def look(self, now: float, *, is_blocked: bool) -> None:
        """Raise the limit where a bolt seems to wait for more tuples before it acks any."""
        if self._congestion is not None and now >= self.stalls_s(is_blocked=is_blocked):
            self._congestion.stalled()
            self._moved_s = now
            self._pending.limit = self._congestion.limit
