"""A stage whose operators wait for somebody else's work, such as Spark's; its task does not.

    everything is in ──▶ ready? ──no──▶ asked again by each tick; meanwhile: other batches
                           └───yes──▶ finish, the next operator, …, the end of the phase

So several batches are under way at a time, and no call is so long that a watchdog would end it. As
long as a batch waits the timeout of its tree is renewed.
"""

from __future__ import annotations

from typing import Any

from sunshower.errors import Unavailable
from sunshower.runtime.usercode import RAISED
from sunshower.topologies.components import Collector, Context, Tuple
from sunshower.trident.batch_bolt import Batch, BatchBolt

_RENEW_S = 0.3  # what waits for longer has its timeout reset


class WaitingBatchBolt(BatchBolt):
    """See above."""

    tick_s = 0.05

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self._hands: Collector[Any]  # the same one in each call
        self._renew_at_s = context.clock.now() + _RENEW_S

    def execute(self, tuple: Tuple[Any], out: Collector[Any]) -> None:
        self._hands = out
        super().execute(tuple, out)

    def tick(self) -> None:
        """Go on with what is ready now. Raises Unavailable when its batch has failed: nothing else
        would tell of it while the batch is tried again and again."""
        waiting = [batch for batch in self._batches.values() if batch.waits]
        for batch in waiting:
            self._go_on(batch, self._hands)
        now = self._context.clock.now()
        if now >= self._renew_at_s:
            for batch in waiting:
                if batch.waits:
                    self._hands.reset_timeout(batch.held[0])
            self._renew_at_s = now + _RENEW_S

    def result(self) -> list[Any]:
        """What the operators have to say of their work."""
        return self._operators.results()

    def _go_on(self, batch: Batch, out: Collector[Any]) -> None:
        try:
            self._operators.use(batch.states)
            if self._finish_phases(batch, batch.held[0], out):
                self._let_go(batch, out)
        except RAISED as error:
            self._outgoing.discard()
            for tuple in batch.held:
                out.fail(tuple, error)
            self._end(batch, f"it has failed in this task ({type(error).__name__}: {error})")
            if isinstance(error, Unavailable):
                raise
