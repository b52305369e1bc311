"""The common part of spout tasks that emit many records at a time and replay them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sunshower.runtime.tasks.spouts.spout_task import SpoutTask
from sunshower.runtime.tasks.user_code import Raised
from sunshower.runtime.tracking.ids import I64
from sunshower.runtime.tracking.pending import Released
from sunshower.runtime.transport.batch import Anchors
from sunshower.runtime.transport.output_streams import NotSent


class BulkSpoutTask(SpoutTask):
    """Sends batches; raises an error of the source after emitting the records before it."""

    _broken: Raised | None = None

    def _raise_broken(self, now: float, *, progress: bool) -> None:
        """Raise the error of the source, once all records before it are emitted."""
        if self._broken is not None:
            broken, self._broken = self._broken, None
            if progress:
                self.supervision.went_well(now, progress=True)
            raise broken

    def _send(
        self,
        stream: str,
        records: Any,
        payloads: Sequence[Any],
        numbers: Sequence[int] | I64,
        attempts: Any,
        now: float,
    ) -> None:
        """Emit `records`; `payloads`: what `Pending` keeps of each until it is acked."""
        if not self._reports.tracked:
            try:
                self.output_streams.send(stream, records, None)
            except NotSent as refused:
                self._note_untracked(refused.errors.values())
            return
        roots = self._take(payloads, numbers, attempts, now)
        errors: dict[int, BaseException] = {}
        try:
            made = self.output_streams.send(stream, records, Anchors(roots))
        except NotSent as refused:
            made, errors = refused.made, refused.errors
        assert made is not None
        self._start(roots, made, errors, now)

    def _message_ids(self, released: Released) -> list[Any]:
        ids: list[Any] = released.numbers.tolist()
        return ids
