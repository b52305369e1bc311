"""The outputs of a stage's task: buffers rows, distributes them, and splits them into parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sunshower.codec import RowList
from sunshower.topologies.components import Collector, Context, Tuple
from sunshower.topologies.operators.port import Attempt
from sunshower.trident.coordination.attempts import Count, Part, SourceTime, counts_stream
from sunshower.trident.stages.plan import Stage, StageOutput

_ROWS_MAX = 4096  # in one part


class PartSender:
    """Rows are buffered until `flush`; `targets` are the stages that get the number of parts."""

    def __init__(self, group: str, stage: Stage, context: Context) -> None:
        self._counts = counts_stream(group)
        self._tasks = {one.target: context.tasks[one.target] for one in stage.outputs}
        self._outputs: list[tuple[StageOutput, list[Any]]] = [(one, []) for one in stage.outputs]
        self.targets = [*dict.fromkeys(one.target for one in stage.outputs if one.counted)]
        for output in stage.outputs:
            output.sharing.prepare(len(self._tasks[output.target]), context.index)

    def takers(self, node: int | None) -> list[Callable[[Sequence[Any]], None]]:
        """The buffers for the rows of a node; None: the stage's spout."""
        return [rows.extend for output, rows in self._outputs if output.node == node]

    def nothing_sent(self) -> dict[str, list[int]]:
        """The counts of a new attempt: target → parts sent to each of its tasks."""
        return {target: [0] * len(tasks) for target, tasks in self._tasks.items()}

    def flush(
        self,
        attempt: Attempt,
        sent: Mapping[str, list[int]],
        anchor: Tuple[Any],
        out: Collector[Any],
    ) -> None:
        """Send all buffered rows, and count the parts in `sent`."""
        for output, waiting in self._outputs:
            if not waiting:
                continue
            records = waiting.copy()
            waiting.clear()
            tasks, counted = self._tasks[output.target], sent[output.target]
            for index, share in output.sharing.split(attempt.txid, records):
                mine = output.schema.rows(share)
                for start in range(0, len(mine), _ROWS_MAX):
                    part = Part(*attempt, RowList(mine[start : start + _ROWS_MAX]))
                    out.emit_direct(tasks[index], part, anchor, stream=output.stream)
                    counted[index] += 1

    def discard(self) -> None:
        """Drop all buffered rows."""
        for _, waiting in self._outputs:
            waiting.clear()

    def count(
        self,
        attempt: Attempt,
        target: str,
        sent: Mapping[str, list[int]],
        anchor: Tuple[Any],
        out: Collector[Any],
        *,
        late: bool,
        times: Mapping[str, SourceTime],
    ) -> None:
        """Send each task of a stage the number of its parts, and how far the sources are."""
        plain = {source: [*time] for source, time in times.items()} or None
        for task, parts in zip(self._tasks[target], sent[target], strict=True):
            count = Count(*attempt, parts, late, plain)
            out.emit_direct(task, count, anchor, stream=self._counts)
