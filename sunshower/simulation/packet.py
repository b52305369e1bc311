"""A packet between two simulated workers, and the call that carries it."""

from __future__ import annotations

from collections.abc import Callable

from sunshower.runtime.transport.packets import Answer
from sunshower.simulation.network import Network, SimProcess


class Packet:
    """Reports its result to the sender once, however many copies the network makes."""

    __slots__ = ("_done", "_hear", "_heard", "_network", "_peer", "_sender", "data")

    def __init__(
        self,
        network: Network,
        sender: SimProcess,
        peer: int,
        data: bytes,
        hear: Callable[[Answer | None], None],
        *,
        heard: bool,
    ) -> None:
        """`hear`: called with the answer, or with None if the call failed; `heard`: whether the
        answer reaches the sender."""
        self._sender = sender
        self.data = data
        self._heard = heard
        self._network = network
        self._peer = peer
        self._hear = hear
        self._done = False

    def leave(self, left_s: float, late_s: float) -> None:
        """Send the packet, or one copy of it."""
        self._network.call(
            self._sender,
            self._peer,
            "deliver",
            self,
            left_s=left_s,
            late_s=late_s,
            failed=self.fail,
        )

    def answer(self, receiver: SimProcess, answer: Answer) -> None:
        """Send the receiver's answer; answers to further copies are ignored."""
        if not self._done:
            self._done = True
            heard = answer if self._heard else None
            self._network.answer(receiver, self._sender, self._hear, heard)

    def fail(self) -> None:
        """Report to the sender, after a while, that the packet did not arrive."""
        if not self._done:
            self._done = True
            self._network.unanswered(self._sender, self._hear)
