"""What spouts have in common that emit many records at a time, and whose records are replayed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sunshower.runtime.batch import Anchors
from sunshower.runtime.ids import I64
from sunshower.runtime.outlets import NotSent
from sunshower.runtime.pending import Released
from sunshower.runtime.spout_task import SpoutTask
from sunshower.runtime.usercode import Raised


class BulkSpoutTask(SpoutTask):
    """Sends batches; what the source has raised waits until all it gave before is emitted."""

    _broken: Raised | None = None

    def _raise_broken(self, now: float, *, progress: bool) -> None:
        """Raise what the source has raised, now that all it gave before is emitted."""
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
        """Emit `records`; `payloads` is what to keep of each until it is acked."""
        if not self._reports.tracked:
            try:
                self.outlets.send(stream, records, None)
            except NotSent as refused:
                self._note_untracked(refused.errors.values())
            return
        roots = self._take(payloads, numbers, attempts, now)
        errors: dict[int, BaseException] = {}
        try:
            made = self.outlets.send(stream, records, Anchors(roots))
        except NotSent as refused:
            made, errors = refused.made, refused.errors
        assert made is not None
        self._start(roots, made, errors, now)

    def _message_ids(self, released: Released) -> list[Any]:
        ids: list[Any] = released.numbers.tolist()
        return ids
