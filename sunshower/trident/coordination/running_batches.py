"""Runs the operators of a stage in one task: passes rows between them and finishes batches.

The receivers of an operator's rows are resolved once, so a part costs a few calls whatever its
length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from sunshower.errors import user_errors_suppressed
from sunshower.topologies.components import Context
from sunshower.topologies.operators.keyed.state_entries import entries_of
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.windows.late_records import LateRecords, sum_of
from sunshower.trident.coordination.attempts import SourceTime
from sunshower.trident.stages.plan import Feed, StageNode
from sunshower.trident.stages.port import Timed, Waiting, publishing
from sunshower.trident.tasks.part_sender import PartSender

Take = Callable[[Sequence[Any]], None]


class Operators:
    """The nodes of one stage in one task. `use` selects the batch of the calls that follow."""

    def __init__(self, nodes: Sequence[StageNode], outgoing: PartSender) -> None:
        self._nodes = nodes
        self._batches: list[Any] = []
        self._emits: list[Take] = [_nowhere] * len(nodes)
        for index in reversed(range(len(nodes))):  # readers come after what they read
            takers = [*outgoing.takers(index), *self.takers(nodes[index].feeds)]
            self._emits[index] = _to_all(takers)
        self._prepared = 0
        self._waiting: dict[int, Waiting] = {
            index: node.operator
            for index, node in enumerate(nodes)
            if isinstance(node.operator, Waiting)
        }

    def prepare(self, context: Context) -> None:
        """Prepare the operators. If one raises, all that were prepared are cleaned up."""
        try:
            for node in self._nodes:
                node.operator.prepare(context)
                self._prepared += 1
        except BaseException:
            with user_errors_suppressed():  # what has failed first says whether there is an outage
                self.cleanup()
            raise

    def takers(self, feeds: Sequence[Feed]) -> list[Take]:
        """The callbacks that accept the rows of an input, or of the stage's spout."""
        return [partial(self._process, *feed) for feed in feeds]

    def start(self, attempt: Attempt) -> list[Any]:
        """The operators' objects for a new attempt, node by node."""
        return [node.operator.start(attempt) for node in self._nodes]

    def use(self, batches: list[Any]) -> None:
        """Select the attempt for which `start` returned `batches`."""
        self._batches = batches

    def finish(
        self, which: Sequence[int], attempt: Attempt, times: Mapping[str, SourceTime]
    ) -> int:
        """Finish nodes in order, up to one that is not ready. Returns how many were finished.
        `times`: how far the sources are."""
        for done, index in enumerate(which):
            operator, batch = self._nodes[index].operator, self._batches[index]
            if index in self._waiting and not self._waiting[index].ready(batch, attempt):
                return done
            if isinstance(operator, Timed):
                operator.note_times(batch, times)
            operator.finish(batch, attempt, self._emits[index])
        return len(which)

    def give_up(self, batches: Sequence[Any]) -> None:
        """Tell the operators that an attempt is over."""
        for index, waiting in self._waiting.items() if batches else ():
            waiting.give_up(batches[index])

    def figures(self) -> dict[str, float]:
        """The figures of all operators that have some."""
        found: dict[str, float] = {}
        for node in self._nodes[: self._prepared]:
            if callable(figures := getattr(node.operator, "figures", None)):
                found.update(figures())
        return found

    def state_entries(self) -> int | None:
        """How many entries the states have; None: no state, or not known."""
        return entries_of(node.operator for node in self._nodes[: self._prepared])

    def late_records(self) -> LateRecords | None:
        """The late records of its windows; None: it has none."""
        nodes = self._nodes[: self._prepared]
        found = [getattr(node.operator, "late_records", None) for node in nodes]
        windows = [records for records in found if records is not None]
        return sum_of(windows) if windows else None

    def results(self) -> list[Any]:
        """The results of all operators that have one."""
        found = (getattr(node.operator, "result", None) for node in self._nodes[: self._prepared])
        return [result() for result in found if callable(result)]

    def succeeded(self, txid: int) -> None:
        """Tell publishing operators that the batches up to `txid` are committed."""
        for node in self._nodes:
            if (operator := publishing(node.operator)) is not None:
                operator.succeeded(txid)

    def cleanup(self) -> None:
        """Clean up the prepared operators: each, also if another one raises."""
        with ExitStack() as cleanups:
            for node in self._nodes[: self._prepared]:
                cleanups.callback(node.operator.cleanup)

    def _process(self, node: int, source: int, rows: Sequence[Any]) -> None:
        operator = self._nodes[node].operator
        operator.process(self._batches[node], source, rows, self._emits[node])


def _nowhere(rows: Sequence[Any]) -> None:
    """Drop rows that no operator reads."""


def _to_all(takers: Sequence[Take]) -> Take:
    if not takers:
        return _nowhere

    def emit(rows: Sequence[Any]) -> None:
        if rows:
            for take in takers:
                take(rows)

    return emit
