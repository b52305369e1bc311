"""Adaptive max pending: how many trees a spout task may have open, found by congestion control.

Additive increase, multiplicative decrease, once per round trip (the complete latency):

    limit reached, and the trees wait no longer than allowed      limit + a 64th; doubled at first
    limit reached, nothing completes, and a bolt may keep tuples  doubled, each `window_s`
    they wait longer, but the limit before had a lower rate       as if they did not
    they wait longer, or a quarter of the timeout in all          limit × 7/8
    a timeout                                                     limit ÷ 2, once per timeout
    the least latency is 30 s old                                 limit ÷ 2 for a round, to see it

The step is a share, not a number: one that suits 20 open trees would need hours to 20,000.
(Where a bolt gathers tuples for one commit, more of them take longer, and are more a second.)
What a tree waits is its latency over the least one seen lately; allowed are `window_s`, or half of
the least latency where that is longer. The last line keeps that least honest: a queue that always
stands would pass for the way itself. A limit that is not reached is left alone: then something else
holds the spout back. Two trees are open at least, so that one is processed while the other is
acked; one, where the latency is above a quarter of the timeout. A bolt with execute() may wait for
more tuples before it acks any; so the limit must not stand between them.
After TCP (RFC 5681) and LEDBAT (RFC 6817, which aims at a delay); BBR probes for its minimum so.
Storm has only the fixed number, max.spout.pending, and a long history of wrong ones.
"""

from __future__ import annotations

from math import inf

from sunshower.config import Config

_FIRST = 1  # a tree may be the work of many seconds
_LEAST = 2
_STEPS = 64
_PROBE_S = 30.0
_PART_OF_TIMEOUT = 0.25  # the latency is to stay below this part of it
_GAIN = 0.25  # of the growth of the limit that the rate must follow, where nothing waits
_PART_OF_LATENCY = 0.5  # that trees may wait, where the way alone is long


class Congestion:
    """The limit of one spout task, between 1 and `limit_max`."""

    def __init__(self, config: Config, limit_max: int) -> None:
        self.limit = _FIRST
        self._limit_max = limit_max
        self._timeout_s = config.message_timeout_s
        self._wait_s = config.window_s
        self._threshold = limit_max  # below it the limit doubles, above it it grows in steps
        self._least_s = inf  # the least latency, and when it was seen
        self._least_at_s = 0.0
        self._judged_s = -inf
        self._cut_again_s = -inf
        self._sum_s, self._count, self._reached = 0.0, 0, False  # since the last judgement
        self._rates: dict[int, tuple[int, float]] = {}  # bits of a limit → it, and trees a second

    def completed(self, now: float, count: int, latency_s: float, reached: bool) -> None:
        """`count` trees are done, after `latency_s` on average.

        `reached`: whether the spout had no room before they were.
        """
        if now - latency_s < self._judged_s:
            return  # emitted under the limit before this one
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
        """A bolt may keep the tuples that are open until it has more."""
        self.limit = min(2 * self.limit, self._limit_max)

    def timed_out(self, now: float) -> None:
        """Some trees have reached their deadline; those emitted before a cut do not cut again."""
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
            step = self.limit if doubling else max(1, self.limit // _STEPS)
            ceiling = self._threshold if doubling else self._limit_max
            self.limit = min(self.limit + step, ceiling)
        if now - self._least_at_s > _PROBE_S:
            self._least_s, self._least_at_s = inf, now
            level = self.limit
            self._shrink(0.5)
            self._threshold = level  # back at once, unless the way has become longer

    def _gains(self, latency_s: float) -> bool:
        """Whether a limit of about half of this one completed clearly fewer trees a second, when
        that was measured last."""
        level, rate = self.limit.bit_length(), self.limit / max(latency_s, 1e-6)
        self._rates[level] = (self.limit, rate)
        half, half_rate = self._rates.get(level - 1, (0, 0.0))
        return half > 0 and rate / half_rate - 1 > _GAIN * (self.limit / half - 1)

    def _shrink(self, factor: float, least: int = _LEAST) -> None:
        self.limit = max(min(least, self.limit), int(self.limit * factor))
        self._threshold = self.limit
