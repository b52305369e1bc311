"""A packet on its way between two simulated workers, and the one call that carries it."""

from __future__ import annotations

from collections.abc import Callable

from sunshower.runtime.packets import Answer
from sunshower.simulation.network import Network, Process


class Packet:
    """Its sender hears once what became of it, however many copies the network makes."""

    __slots__ = ("_done", "_hear", "_heard", "_network", "_peer", "_sender", "data")

    def __init__(
        self,
        network: Network,
        sender: Process,
        peer: int,
        data: bytes,
        hear: Callable[[Answer | None], None],
        *,
        heard: bool,
    ) -> None:
        """`hear`: told the answer, or None when the call has failed; `heard`: whether the answer
        finds its way back."""
        self._sender = sender
        self.data = data
        self._heard = heard
        self._network = network
        self._peer = peer
        self._hear = hear
        self._done = False

    def leave(self, left_s: float, late_s: float) -> None:
        """It sets out, or one copy of it."""
        self._network.call(
            self._sender,
            self._peer,
            "deliver",
            self,
            left_s=left_s,
            late_s=late_s,
            failed=self.fail,
        )

    def answer(self, receiver: Process, answer: Answer) -> None:
        """What its receiver says to it. To a second copy nobody listens."""
        if not self._done:
            self._done = True
            heard = answer if self._heard else None
            self._network.answer(receiver, self._sender, self._hear, heard)

    def fail(self) -> None:
        """Nobody was there, or it is lost: its sender learns of that after a while."""
        if not self._done:
            self._done = True
            self._network.unanswered(self._sender, self._hear)
