"""How long the batches of a group take, and what has become of them, for whoever looks on."""

from __future__ import annotations

from dataclasses import dataclass

from sunshower.trident.coordinator import MasterCoordinator, Status


@dataclass
class _Times:
    begun_s: float
    processed_s: float | None = None


class Timing:
    """The clock readings of the active batches, and sums of those that are done."""

    def __init__(self) -> None:
        self._active: dict[int, _Times] = {}
        self._committed = self._skipped = self._failed = 0
        self._process_s = self._commit_s = self._busy_s = 0.0  # of the last batch; of all

    def begun(self, txid: int, now: float) -> None:
        """An attempt begins."""
        self._active[txid] = _Times(now)

    def acked(self, txid: int, now: float) -> None:
        """A tree of the active attempt is complete."""
        times = self._active[txid]
        if times.processed_s is None:
            times.processed_s = now

    def failed(self, txid: int) -> None:
        """The active attempt has failed."""
        self._failed += 1

    def committed(self, txid: int, now: float, *, skipped: bool) -> None:
        """A batch is done."""
        times = self._active.pop(txid)
        processed_s = now if times.processed_s is None else times.processed_s
        self._process_s, self._commit_s = processed_s - times.begun_s, now - processed_s
        self._busy_s += now - times.begun_s
        self._committed += 1
        self._skipped += skipped

    def figures(self, machine: MasterCoordinator, now: float) -> dict[str, float]:
        """By name. Those with a slash are of one active batch: phase (0 processing, 1 processed,
        2 committing, 3 committed), attempt and age."""
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
        for txid, active in machine.active.items():
            found[f"batch {txid}/attempt"] = active.attempt
            found[f"batch {txid}/phase"] = list(Status).index(active.status)
            found[f"batch {txid}/age seconds"] = now - self._active[txid].begun_s
        return found
