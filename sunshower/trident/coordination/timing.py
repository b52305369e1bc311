"""Measures the phases of a group's batches, and records the outcome of their attempts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sunshower.failures import Cause, Failure
from sunshower.topologies.operators.port import Attempt
from sunshower.trident.coordination.batch_scheduler import BatchScheduler, Status


@dataclass
class _Times:
    begun_s: float
    processed_s: float | None = None


class Timing:
    """Times of the active batches, and sums over the finished ones. `noted` is Context.noted: each
    change of an attempt is recorded in the event log."""

    def __init__(self, noted: Callable[..., None]) -> None:
        self._noted = noted
        self._active: dict[int, _Times] = {}
        self._committed = self._skipped = self._failed = 0
        self._unavailable_since_s: float | None = None  # no batch has been committed since
        self._process_s = self._commit_s = self._busy_s = 0.0  # of the last batch; of all

    def begun(self, id: Attempt, now: float, *, skip: bool) -> None:
        """Record that an attempt begins."""
        self._active[id.txid] = _Times(now)
        self._note("batch begun", id, skip=skip)

    def acked(self, id: Attempt, now: float) -> None:
        """Record that a tree of the active attempt is complete."""
        times = self._active[id.txid]
        if times.processed_s is None:
            times.processed_s = now
            self._note("batch processed", id)

    def failed(self, id: Attempt, failure: Failure, now: float) -> None:
        """Record that the active attempt has failed; later batches are given up with it."""
        self._failed += 1
        if failure.cause is Cause.UNAVAILABLE and self._unavailable_since_s is None:
            self._unavailable_since_s = now
        self._note("batch failed", id, cause=str(failure.cause), why=str(failure))

    def committed(self, id: Attempt, now: float, *, skipped: bool) -> None:
        """Record that a batch is committed."""
        times = self._active.pop(id.txid)
        processed_s = now if times.processed_s is None else times.processed_s
        self._process_s, self._commit_s = processed_s - times.begun_s, now - processed_s
        self._busy_s += now - times.begun_s
        self._committed += 1
        self._unavailable_since_s = None
        self._skipped += skipped
        self._note("batch committed", id, skipped=skipped)

    def _note(self, event: str, id: Attempt, **facts: Any) -> None:
        self._noted(event, **id._asdict(), **facts)

    def figures(self, machine: BatchScheduler, now: float) -> dict[str, float]:
        """Figures by name. Names with a slash belong to one active batch: attempt, phase (0
        processing, 1 processed, 2 committing, 3 committed), age, and seconds until it was
        processed."""
        found: dict[str, float] = {
            "txid": machine.current,
            "batches active": len(machine.active),
            "batches committed": self._committed,
            "attempts failed": self._failed,
            "batches skipped": self._skipped,
            "process seconds": self._process_s,
            "commit seconds": self._commit_s,
            "mean seconds": self._busy_s / self._committed if self._committed else 0.0,
        }
        if self._unavailable_since_s is not None:
            found["seconds unavailable"] = now - self._unavailable_since_s
        for txid, active in machine.active.items():
            found[f"batch {txid}/attempt"] = active.attempt
            found[f"batch {txid}/phase"] = list(Status).index(active.status)
            times = self._active[txid]
            found[f"batch {txid}/age seconds"] = now - times.begun_s
            if times.processed_s is not None:
                found[f"batch {txid}/process seconds"] = times.processed_s - times.begun_s
        return found
