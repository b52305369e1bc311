"""Reads the attempts of Trident batches, and their figures, from a history."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sunshower.experiments.evidence.event_history import History
from sunshower.runtime.events.event_log import What


@dataclass
class BatchAttempt:
    """One attempt at a batch. Times are seconds from the start of the run; None: unknown.

    An attempt without an end was given up with an earlier batch or with its coordinator, or the run
    ended.
    """

    group: str  # the coordinator's task
    txid: int
    attempt: int
    epoch: int  # the coordinator's life
    begun_s: float
    rows: int = 0
    processed_s: float | None = None
    committed_s: float | None = None
    failed_s: float | None = None
    why: str = ""


def batches_of(history: History) -> list[BatchAttempt]:
    """Return all attempts of all groups, in the order in which they began."""
    found: dict[tuple[str, int, int, int], BatchAttempt] = {}
    emitted: dict[tuple[int, int, int], int] = {}
    for task, at_s, event, facts in _noted(history):
        stamp = facts["txid"], facts["attempt"], facts["epoch"]
        key = history.name(task), *stamp
        if event == "batch begun":
            found[key] = BatchAttempt(*key, begun_s=at_s)
        elif event == "batch emitted":
            emitted[stamp] = emitted.get(stamp, 0) + facts["rows"]
        elif key in found:
            one = found[key]
            match event:
                case "batch processed":
                    one.processed_s = at_s
                case "batch committed":
                    one.committed_s = at_s
                case "batch failed":
                    one.failed_s, one.why = at_s, facts["why"]
    if (
        len({one.group for one in found.values()}) == 1
    ):  # else the rows cannot be assigned to a group
        for one in found.values():
            one.rows = emitted.get((one.txid, one.attempt, one.epoch), 0)
    return list(found.values())


def batch_figures(history: History) -> dict[str, float]:
    """Return the figures of batches by name; empty without batches.

    batches committed, batch attempts, batch attempts failed; batch_p50_s, batch_p99_s: the duration
    of committed attempts.
    """
    found = batches_of(history)
    if not found:
        return {}
    took_s = [one.committed_s - one.begun_s for one in found if one.committed_s is not None]
    figures: dict[str, float] = {
        "batches committed": len(took_s),
        "batch attempts": len(found),
        "batch attempts failed": sum(one.failed_s is not None for one in found),
    }
    if took_s:
        median, tail = np.percentile(took_s, (50, 99)).tolist()
        figures |= {"batch_p50_s": round(median, 6), "batch_p99_s": round(tail, 6)}
    return figures


def _noted(history: History) -> Iterator[tuple[int, float, str, dict[str, Any]]]:
    rows = history.rows(What.NOTED)
    for task, at_s, (event, facts) in zip(
        rows.tasks.tolist(), rows.at_s.tolist(), rows.details, strict=True
    ):
        if event.startswith("batch ") and {"txid", "attempt", "epoch"} <= facts.keys():
            yield task, at_s, event, facts
