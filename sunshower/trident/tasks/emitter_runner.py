"""The first step of a spout's stage: its emitter, which emits this task's share of each batch.

Storm: org.apache.storm.trident.spout.TridentSpoutExecutor
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any

from sunshower.errors import (
    BadEmit,
    BatchError,
    IncompleteBatch,
    NodeExists,
    NoNode,
    StoreUnreachable,
    Unavailable,
)
from sunshower.records import Schema
from sunshower.state.tree import Tree, parent
from sunshower.texts import describe
from sunshower.topologies.components import Collector, Context, Tuple
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.windows.event_times import ClockLimit
from sunshower.topologies.retry import DEAD_LETTERS
from sunshower.trident.coordination.attempts import BatchCommand, SourceTime
from sunshower.trident.coordination.transactional_log import letter_without_rows, letters
from sunshower.trident.spouts.bounds import ShareSize
from sunshower.trident.spouts.partition_emitters import OnePartition
from sunshower.trident.spouts.port import Rows
from sunshower.trident.spouts.reached_times import ReachedTimes
from sunshower.trident.stages.plan import Source

# ---- idle backoff --------------------------------------------------------------------------------
# Back-off for idle sources: emitters leave notes, and the master begins batches less often.
#
#     <root>/<spout id>/idle/<task>     exists while the last batches of this task were empty
#
# An empty batch costs a few writes, so empty batches must not follow each other at the speed of
# the disk. A note is written and removed only on a change, not with each batch.

EMPTY_TIMES = 3  # empty batches in a row before there is a note
_FIRST_S, _LONGEST_S = 0.01, 0.2  # the time that new rows may have to wait


def idle_path(root: str, spout: str) -> str:
    """The node below which the emitters of a spout leave their notes."""
    return f"{root.rstrip('/')}/{spout}/idle"


class IdleNote:
    """The note of one emitter."""

    def __init__(self, tree: Tree, path: str) -> None:
        self._tree = tree
        self._path = path
        self._is_there = tree.get(path) is not None  # of a former life
        self._empty = 0

    def emitted(self, rows: int) -> None:
        """A batch had so many rows. After an outage the next batch updates the note."""
        self._empty = 0 if rows else self._empty + 1
        wanted = self._empty >= EMPTY_TIMES
        if wanted == self._is_there:
            return
        with suppress(StoreUnreachable):
            with suppress(NodeExists, NoNode):
                if wanted:
                    self._tree.create(self._path)
                else:
                    self._tree.delete(self._path)
            self._is_there = wanted


class IdleBackoff:
    """How long the master waits after a batch: longer each time while all sources are idle."""

    def __init__(self, tree: Tree, root: str, emitters: Mapping[str, int]) -> None:
        """`emitters`: the number of tasks of each spout."""
        self._tree = tree
        self._wanted = {
            idle_path(root, spout): {str(index) for index in range(count)}
            for spout, count in emitters.items()
        }
        self._last_s = 0.0

    def seconds(self) -> float:
        """The wait after a committed batch. Raises StoreUnreachable."""
        for path, wanted in self._wanted.items():
            if not wanted.issubset(self._tree.children(path)):
                self._last_s = 0.0
                return 0.0
        self._last_s = min(max(_FIRST_S, 2 * self._last_s), _LONGEST_S)
        return self._last_s


# ---- emitter runner ------------------------------------------------------------------------------


class _Rows:
    """The Rows that an emitter gets. `read` is called with their number, before they are taken."""

    def __init__(
        self,
        takers: Sequence[Callable[[Sequence[Any]], None]],
        schema: Schema,
        records_max: int | None,
        read: Callable[[int], None],
        is_skipped: bool,
    ) -> None:
        self._takers, self._read, self._schema = takers, read, schema
        self.records_max, self.is_skipped = records_max, is_skipped
        self.count = 0

    def emit(self, rows: Sequence[Any]) -> None:
        if rows:
            self._check(rows)
            self.count += len(rows)
            self._read(self.count)
            for take in self._takers:
                take(rows)

    def _check(self, rows: Sequence[Any]) -> None:
        """Raise BadEmit for a record of which something would be lost on the way."""
        schema = self._schema
        if (wrong := schema.misfit(rows)) is not None and (why := schema.loss(rows[wrong])):
            raise BadEmit(f"{describe(rows[wrong], 200)} cannot be emitted: {why}")


def _ignore(rows: int) -> None:
    """Rows that are not processed, or whose time does not matter."""


class EmitterRunner:
    """The emitter of one task. `timeout_s`: by when a batch has to be committed, for ShareSize;
    None: a stage waits for work outside its task, which renews the timeout of its batch."""

    def __init__(
        self,
        source: Source,
        store: Callable[[], Tree],
        root: str,
        timeout_s: float | None,
        interval_s: float = 0.0,
    ) -> None:
        self._source, self._interval_s = source, interval_s
        self._timeout_s = timeout_s
        self._store = store
        self._root = root

    def prepare(self, context: Context) -> None:
        self._tree = self._store()
        path = f"{self._root.rstrip('/')}/{self._source.id}/user"
        try:
            self._emitter: Any = self._source.spout.emitter(self._tree, path, context)
            self.times = self._watch(path, context)
            idle = f"{idle_path(self._root, self._source.id)}/{context.index}"
            self._idle = IdleNote(self._tree, idle)
        except BaseException:
            self._tree.close()
            raise
        self._rows = 0
        self.polled_s = 0.0  # how long it has asked sources that had nothing
        timeout_s = self._timeout_s
        self._size = None if timeout_s is None else ShareSize(context.clock, timeout_s)
        self._active: dict[int, int] = {}  # txid → rows, of batches not known to be committed
        self._context = context

    def emit(
        self,
        order: BatchCommand,
        takers: Sequence[Callable[[Sequence[Any]], None]],
        anchor: Tuple[Any],
        out: Collector[Any],
    ) -> SourceTime | None:
        """Emit a batch to `takers`. The rows of a skipped batch become dead letters instead; if
        they cannot all be emitted any more, a further letter says so. Returns how far the
        partitions of this task are in event time; None: no windows are downstream."""
        sent = order.sources[self._source.id]
        if isinstance(sent, str):
            raise BatchError(sent)
        metadata, has_ended, begun_s = sent
        put_aside: list[Any] = []
        wall_s = self._context.clock.wall()
        size = self._size
        rows = _Rows(
            [put_aside.extend] if order.skip else takers,
            self._source.schema,
            None if size is None else size.begin(order.attempt),
            _ignore if size is None or order.skip else partial(size.read, order.txid),
            order.skip,
        )
        asked_s = self._context.clock.now()
        try:
            self._emit_rows(order, metadata, rows)
        except IncompleteBatch as error:
            if not order.skip:
                raise
            rows.emit(error.rows)
            out.emit(
                letter_without_rows(self._source.id, order.txid, error, order.why, wall_s),
                anchor,
                stream=DEAD_LETTERS,
            )
        if not rows.count:
            self.polled_s += self._context.clock.now() - asked_s
        self._rows += rows.count
        self._active[order.txid] = rows.count
        which = {"txid": order.txid, "attempt": order.attempt, "epoch": order.epoch}
        self._context.noted("batch emitted", **which, rows=rows.count)
        self._idle.emitted(rows.count)
        if put_aside:
            about = (self._source.id, order.txid, self._source.schema, put_aside, order.why, wall_s)
            for letter in letters(*about):
                out.emit(letter, anchor, stream=DEAD_LETTERS)
        if not self._source.ends_windows:
            return None
        total = SourceTime(inf, inf, False, False) if self.times is None else self.times.total
        if has_ended and not rows.count:
            total = total._replace(earlier=inf)
        return total._replace(ended=has_ended, begun_s=begun_s)

    def _watch(self, path: str, context: Context) -> ReachedTimes | None:
        """Let the emitter note event times, if windows use them."""
        if (field := self._source.time) is None:
            return None
        spout, schema, emitter = self._source.spout, self._source.schema, self._emitter
        if (function := getattr(spout, "event_time", None)) is None:
            reader = field.reader(schema)
        else:  # that of the emitter is of the spout that it has opened
            function = getattr(emitter, "event_time", function)
            reader = field.reader_by("event_time()", function)
        reader.what += f" of spout {self._source.id!r}"
        limit = ClockLimit(reader.what, field)
        times = ReachedTimes(reader, context.clock, self._interval_s, limit)
        if not hasattr(emitter, "watch"):
            folder = f"{parent(path)}/times"
            self._emitter = emitter = OnePartition(emitter, spout.kind, self._tree, folder, context)
        emitter.watch(times)
        return times

    def _emit_rows(self, order: BatchCommand, metadata: Any, rows: Rows) -> None:
        attempt = Attempt(*order[:3])
        if self.times is None:
            self._emitter.emit_batch(attempt, metadata, rows)
            return
        self.times.begin(order.current)
        try:
            self._emitter.emit_batch(attempt, metadata, rows)
        except BaseException:
            self.times.failed()
            raise

    def commit(self, attempt: Attempt) -> None:
        """Call the emitter in the commit phase, if the spout commits."""
        if self._source.spout.commits:
            self._emitter.commit(attempt)

    def succeeded(self, attempt: Attempt) -> None:
        """A batch is committed. After an outage the next call cleans up."""
        last = max((txid for txid in self._active if txid <= attempt.txid), default=0)
        self._active = {txid: rows for txid, rows in self._active.items() if txid >= last}
        if self._size is not None:
            self._size.committed(attempt.txid)
        with suppress(Unavailable):
            self._emitter.success(attempt)

    def figures(self) -> Mapping[str, float]:
        """The emitter's figures, the rows emitted, those of the last batch, and those of each batch
        not yet known to be committed."""
        batch_rows = {f"batch {txid}/rows": float(rows) for txid, rows in self._active.items()}
        last = self._active.get(max(self._active, default=0), 0)
        sums = {"rows emitted": float(self._rows), "rows of the last batch": float(last)}
        return {**sums, **batch_rows, **self._emitter.figures()}

    def close(self) -> None:
        self._emitter.close()
        self._tree.close()
