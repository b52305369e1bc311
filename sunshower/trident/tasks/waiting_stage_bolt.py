"""A stage whose operators wait for outside work, such as Spark's, without blocking their task.

    all rows arrived ──▶ ready? ──no──▶ polled by each tick; meanwhile: other batches
                           └───yes──▶ finish, the next operator, …, the end of the phase

So several batches are in progress at a time, and no call is long enough for the watchdog to end the
process. The timeouts of waiting batches are reset.
"""

from __future__ import annotations

from typing import Any

from sunshower.errors import Unavailable, user_errors
from sunshower.texts import describe_error
from sunshower.topologies.components import Collector, Context, Tuple
from sunshower.trident.tasks.stage_bolt import StageBolt, TaskBatch

_RENEW_S = 0.3  # interval between resets of the timeouts


class WaitingStageBolt(StageBolt):
    """A StageBolt that polls its waiting operators in `tick`."""

    tick_s = 0.05

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self._out: Collector[Any]  # `execute` gets the same collector in each call
        self._renew_at_s = context.clock.now() + _RENEW_S

    def execute(self, tuple: Tuple[Any], out: Collector[Any]) -> None:
        self._out = out
        super().execute(tuple, out)

    def tick(self) -> None:
        """Continue the batches that are ready. Raises Unavailable if one of them has failed with
        it, since nothing else reports the outage while the batch is retried."""
        waiting = [batch for batch in self._batches.values() if batch.waits]
        for batch in waiting:
            self._go_on(batch, self._out)
        now = self._context.clock.now()
        if now >= self._renew_at_s:
            for batch in waiting:
                if batch.waits:
                    self._out.reset_timeout(batch.held[0])
            self._renew_at_s = now + _RENEW_S

    def result(self) -> list[Any]:
        """The results of the operators that have one."""
        return self._operators.results()

    def _go_on(self, batch: TaskBatch, out: Collector[Any]) -> None:
        try:
            self._operators.use(batch.operators)
            self._advance(batch, batch.held[0], out)
        except user_errors() as error:
            self._sender.discard()
            for tuple in batch.held:
                out.fail(tuple, error)
            self._end(batch, f"it has failed in this task ({describe_error(error)})")
            if isinstance(error, Unavailable):
                raise
