"""How spout and bolt tasks put what befalls their tuples into a history; the table is there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from sunshower.failures import Failure
from sunshower.runtime.batch import Anchors, Batch
from sunshower.runtime.history import Scribe, What
from sunshower.runtime.ids import I64, U64
from sunshower.runtime.pending import Released


class Input(Protocol):
    """An input that a manual bolt holds: one edge for each of its trees."""

    @property
    def roots(self) -> Sequence[int]: ...
    @property
    def edges(self) -> Sequence[int]: ...


def emitted(
    scribe: Scribe,
    task: int,
    roots: U64,
    numbers: Sequence[int] | I64,
    attempts: Any,
    message_ids: list[Any] | None,
) -> None:
    """A spout task emits these; `attempts`: of all of them, or of each."""
    each = np.full(len(roots), attempts, np.int64)
    scribe.note(What.EMITTED, task, roots, np.array(numbers, np.int64), each, message_ids)


def completed(scribe: Scribe, task: int, released: Released) -> None:
    """These trees are done."""
    attempts = released.attempts.astype(np.int64)
    scribe.note(What.COMPLETED, task, released.roots, released.numbers, attempts)


def failed(scribe: Scribe, task: int, released: Released, failures: Iterable[Failure]) -> None:
    """These trees have failed."""
    attempts = released.attempts.astype(np.int64)
    causes = [failure.cause for failure in failures]
    scribe.note(What.FAILED, task, released.roots, released.numbers, attempts, causes)


def settled(scribe: Scribe, task: int, batch: Batch, failures: Mapping[int, Failure]) -> None:
    """A bolt task is done with a batch; `failures`: index of an input → why that one failed."""
    if not failures:
        scribe.note_edges(What.ACKED, task, batch.roots, batch.edges)
        return
    good = np.delete(np.arange(len(batch)), list(failures))
    scribe.note_edges(What.ACKED, task, *_rows(batch, good))
    for cause in {failure.cause: None for failure in failures.values()}:
        bad = np.array([index for index, why in failures.items() if why.cause is cause])
        scribe.note_edges(What.REFUSED, task, *_rows(batch, bad), cause)


def inputs(
    scribe: Scribe, what: What, task: int, held: Iterable[Input], detail: Any = None
) -> None:
    """The same of inputs that a manual bolt settles one by one."""
    rows = [row for one in held for row in zip(one.roots, one.edges, strict=True)]
    if rows:
        roots, edges = np.array(rows, np.uint64).T
        scribe.note_edges(what, task, roots, edges, detail)


def _rows(batch: Batch, which: I64) -> tuple[U64, U64]:
    """The roots and edges of some of its records."""
    roots, edges = (Anchors(ids, batch.offsets) for ids in (batch.roots, batch.edges))
    return roots.select(which).roots, edges.select(which).roots
