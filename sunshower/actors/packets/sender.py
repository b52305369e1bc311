"""Sends a worker's packets to its peers, and injects the network faults of an experiment.

Everything runs on the loop's thread without sleeping: delayed packets wait here until the loop
calls `send` again. They belong to one life of the worker, and are dropped with it.
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
from sunshower.actors.packets.sockets import Endpoint, PacketSockets, PeerConnection
from sunshower.runtime.events.injected_faults import WELL, Fate, flipped
from sunshower.runtime.tracking.ids import seeded
from sunshower.runtime.transport.packets import Answer
from sunshower.runtime.worker import Worker

_OnAnswer = Callable[[int | None], None]
_Put = Callable[[Callable[[], Any]], None]
_Late = tuple[float, int, Callable[[], None]]  # due time, sequence number, action


def _ignore(answer: int | None) -> None:
    """Of a copy of a packet only the first answer counts."""


class PacketSender:
    """Sends the packets of one core to its peers.

    `put` adds a call to the loop's mailbox, from any thread.
    """

    def __init__(self, run: str, core: Worker, sockets: PacketSockets, put: _Put) -> None:
        self._run = run
        self._core = core
        self._answer_s = core.plan.graph.config.worker_timeout_s / 2
        self._sockets = sockets
        self._put = put
        self._peers: dict[int, PeerConnection] = {}
        self._generator = seeded(secrets.randbits(128))
        self._late: list[_Late] = []
        self._count = 0

    def send(self, now: float) -> float | None:
        """Send the core's outgoing packets, and delayed packets that are due.

        Returns the seconds until the next delayed packet is due; None if there is none.
        """
        while self._late and self._late[0][0] <= now:
            heapq.heappop(self._late)[-1]()
        for peer, seq, packet in self._core.outgoing():
            fate = self._core.fate(peer)
            if fate is WELL:
                self._carry(peer, packet, now, partial(self._answered, peer, seq))
            else:
                self._send_with_faults(fate, peer, seq, packet, now)
        return max(self._late[0][0] - now, 0.0005) if self._late else None

    def _send_with_faults(self, fate: Fate, peer: int, seq: int, packet: bytes, now: float) -> None:
        if fate.corrupt:
            packet = flipped(packet, self._generator)
        on_answer = self._answered if fate.heard else self._answer_lost
        if not fate.delays_s and fate.fails:
            self._put(partial(self._core.answered, peer, seq, None))
        for copy, delay_s in enumerate(fate.delays_s):  # only the answer to the first copy counts
            answered = _ignore if copy else partial(on_answer, peer, seq)
            carry = partial(self._carry, peer, packet, now + delay_s, answered)
            if delay_s:
                self._count += 1
                late: _Late = (now + delay_s, self._count, carry)
                heapq.heappush(self._late, late)
            else:
                carry()

    def close(self) -> None:
        """Close the connections to all peers."""
        for connection in self._peers.values():
            connection.close()

    def _carry(self, peer: int, packet: bytes, now: float, on_answer: _OnAnswer) -> None:
        connection = self._peers.get(peer)
        if connection is not None and connection.silent_s(now) > self._answer_s:
            connection.close()
        if connection is None or connection.closed:
            connection = self._peers[peer] = self._connect(peer)
        connection.send(packet, on_answer, now)

    def _connect(self, peer: int) -> PeerConnection:
        """Ask the peer's actor where it listens, and connect. Returns at once."""
        connection = PeerConnection(self._sockets)
        try:
            actor = ray.get_actor(worker_name(self._run, peer), namespace=NAMESPACE)
        except Exception:  # it is being replaced, or Ray's head does not answer
            connection.close()
            return connection

        def found(call: Future[Endpoint]) -> None:
            if call.exception():
                connection.close()
            else:
                connection.open(call.result())

        actor.endpoint.remote().future().add_done_callback(found)
        return connection

    def _answered(self, peer: int, seq: int, answer: int | None) -> None:
        """Runs on any thread, so it only adds to the mailbox."""
        found = None if answer is None else Answer(answer)
        if found is Answer.STALE and (connection := self._peers.get(peer)) is not None:
            self._put(connection.close)  # the peer may have been replaced by another process
        self._put(partial(self._core.answered, peer, seq, found))

    def _answer_lost(self, peer: int, seq: int, answer: int | None) -> None:
        """Report a failed call to the core, although the packet has arrived."""
        self._put(partial(self._core.answered, peer, seq, None))
