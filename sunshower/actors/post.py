"""The way of packets out of a worker's process, and what an experiment does to them on it.

All on the loop's thread, and nothing sleeps: packets that are late wait here until the loop comes
by again. They belong to one life of the worker, and go away with it.
"""

from __future__ import annotations

import heapq
import secrets
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import ray

from sunshower.actors.names import NAMESPACE, worker_name
from sunshower.runtime.havoc import WELL, Fate, flipped
from sunshower.runtime.ids import seeded
from sunshower.runtime.packets import Answer
from sunshower.runtime.worker import Worker

_Put = Callable[[Callable[[], Any]], None]
_Late = tuple[float, int, Callable[[], None]]  # when it is due, which one it is, what to do then


class Post:
    """Carries the packets of one core to the actors of its peers.

    `put` has the loop do something, from any thread.
    """

    def __init__(self, run: str, core: Worker, put: _Put) -> None:
        self._run = run
        self._core = core
        self._put = put
        self._peers: dict[int, Any] = {}
        self._generator = seeded(secrets.randbits(128))
        self._late: list[_Late] = []
        self._count = 0

    def send(self, now: float) -> float | None:
        """Send what the core has for others, and what was late and is due.

        Returns after how many seconds there is more that is late; None: there is none.
        """
        while self._late and self._late[0][0] <= now:
            heapq.heappop(self._late)[-1]()
        for peer, seq, packet in self._core.outgoing():
            fate = self._core.fate(peer)
            if fate is WELL:
                self._carry(peer, packet, partial(self._answered, peer, seq))
            else:
                self._suffer(fate, peer, seq, packet, now)
        return max(self._late[0][0] - now, 0.0005) if self._late else None

    def _suffer(self, fate: Fate, peer: int, seq: int, packet: bytes, now: float) -> None:
        if fate.corrupt:
            packet = flipped(packet, self._generator)
        hear = self._answered if fate.heard else self._unheard
        if not fate.delays_s:
            self._put(partial(self._core.answered, peer, seq, None))
        for copy, delay_s in enumerate(fate.delays_s):  # the answer to the first one is the answer
            carry = partial(self._carry, peer, packet, None if copy else partial(hear, peer, seq))
            if delay_s:
                self._count += 1
                late: _Late = (now + delay_s, self._count, carry)
                heapq.heappush(self._late, late)
            else:
                carry()

    def _carry(self, peer: int, packet: bytes, hear: Callable[[Future[int]], None] | None) -> None:
        if peer not in self._peers:
            name = worker_name(self._run, peer)
            self._peers[peer] = ray.get_actor(name, namespace=NAMESPACE)
        answer = self._peers[peer].deliver.remote(packet)
        if hear is not None:
            answer.future().add_done_callback(hear)

    def _answered(self, peer: int, seq: int, call: Future[int]) -> None:
        """On a thread of Ray's: only into the mailbox."""
        answer = None if call.exception() else Answer(call.result())
        self._put(partial(self._core.answered, peer, seq, answer))

    def _unheard(self, peer: int, seq: int, call: Future[int]) -> None:
        """The packet has arrived, but its sender is told that the call has failed."""
        self._put(partial(self._core.answered, peer, seq, None))
