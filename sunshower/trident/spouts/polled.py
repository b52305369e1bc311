"""Adapts a spout with `next_tuple` to a batch spout: what it emits within bounds is a batch.

    <user path>/ended      5      the spout has finished, and there are no rows after this batch;
                           0      it has not. Each life of the task rewrites the node

Storm: org.apache.storm.trident.spout.RichSpoutBatchExecutor
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from typing import Any, NamedTuple

from sunshower.errors import BadEmit, NodeExists, StaleAttempt, TopologyError, WrongVersion
from sunshower.failures import Cause, Failure
from sunshower.state.tree import Tree, parent
from sunshower.topologies.components import DEFAULT, Context, Spout
from sunshower.topologies.graph import Level
from sunshower.topologies.signatures import spout_signature
from sunshower.trident.coordination.attempts import Attempt
from sunshower.trident.coordination.txid_nodes import decode, encode
from sunshower.trident.spouts.bounds import Bounds, Room
from sunshower.trident.spouts.port import BaseCoordinator, BaseEmitter, Rows, SpoutKind

_LOG = logging.getLogger("sunshower")


class PolledSpout:
    """Batches of the default stream of a spout with `next_tuple`, in one task (port
    `TridentSpout`).

    Message ids are acked when their batch is committed, and failed when it fails. Then a spout with
    `replay = False` is polled again; for others the same rows are emitted again. After a crash of
    the task the spout is polled from wherever `open` starts. So states behind it are not exact.
    `tick` is not called. Raises TopologyError for other spouts.
    """

    kind = SpoutKind.NON_TRANSACTIONAL
    commits = False
    parallelism_max = 1

    def __init__(self, spout: Spout[Any], *, bounds: Bounds | None = None) -> None:
        name = type(spout).__name__
        signature = spout_signature(spout, name)
        if signature.level is not Level.NEXT_TUPLE:
            raise TopologyError(f"{name} has no next_tuple, which could be asked for batches")
        self.emits = spout.emits if spout.emits is not None else signature.emits
        self._spout, self._bounds = spout, bounds or Bounds()

    def coordinator(self, tree: Tree, path: str, context: Context) -> _Coordinator:
        return _Coordinator(tree, f"{parent(path)}/user/ended")

    def emitter(self, tree: Tree, path: str, context: Context) -> _Emitter:
        return _Emitter(deepcopy(self._spout), self._bounds, tree, f"{path}/ended", context)


class _Coordinator(BaseCoordinator):
    def __init__(self, tree: Tree, ended: str) -> None:
        self._tree, self._ended = tree, ended

    def is_last(self, metadata: Any) -> bool:
        node = self._tree.get(self._ended)
        return node is not None and 0 < decode(node, self._ended) <= metadata["txid"]


class _Emitted(NamedTuple):
    record: Any
    message_id: Any


class _Collector:
    """The SpoutCollector that `next_tuple` gets."""

    def __init__(self, spout: str) -> None:
        self.waiting: deque[_Emitted] = deque()
        self.finished = False
        self._spout = spout

    def emit(self, record: Any, message_id: Any = None, *, stream: str = DEFAULT) -> None:
        if stream != DEFAULT:
            raise BadEmit(
                f"{self._spout} emits {record!r} on stream {stream!r}; batches are made of its "
                "default stream alone"
            )
        self.waiting.append(_Emitted(record, message_id))

    def emit_direct(
        self, task: int, record: Any, message_id: Any = None, *, stream: str = DEFAULT
    ) -> None:
        raise BadEmit(f"{self._spout} emits {record!r} to task {task}; rows of batches have none")

    def finish(self) -> None:
        self.finished = True


class _Emitter(BaseEmitter):
    def __init__(
        self, spout: Spout[Any], bounds: Bounds, tree: Tree, ended: str, context: Context
    ) -> None:
        self._spout, self._bounds, self._clock = spout, bounds, context.clock
        self._tree, self._ended = tree, ended
        self._kept: dict[int, list[_Emitted]] = {}  # the batches in progress
        self._out = _Collector(type(spout).__name__)
        self._said, not_yet = 0, encode(0, ended)
        with suppress(NodeExists):
            tree.create(ended, not_yet)
        self._version = tree.set(ended, not_yet)  # makes the version of a former life stale
        spout.open(context)
        spout.activate()

    def emit_batch(self, attempt: Attempt, metadata: Any, rows: Rows) -> None:
        txid = attempt.txid
        if txid in self._kept:
            self._fail(self._kept[txid])
            if not self._spout.replay:
                del self._kept[txid]
        if txid not in self._kept:
            self._kept[txid] = self._poll()
        self._tell_end(txid)
        rows.emit([one.record for one in self._kept[txid]])

    def success(self, attempt: Attempt) -> None:
        for txid in sorted(txid for txid in self._kept if txid <= attempt.txid):
            for one in self._kept.pop(txid):
                if one.message_id is not None:
                    self._say(self._spout.ack, one.message_id)

    def close(self) -> None:
        self._spout.close()

    def figures(self) -> Mapping[str, float]:
        return self._spout.figures()

    def _poll(self) -> list[_Emitted]:
        found: list[_Emitted] = []
        room, waiting = Room(self._bounds, self._clock), self._out.waiting
        try:
            while len(found) < self._bounds.records and room.seconds:
                if not waiting and not self._out.finished:
                    self._spout.next_tuple(self._out)
                if not waiting:
                    break
                while waiting and len(found) < self._bounds.records:
                    found.append(waiting.popleft())
        except BaseException:
            waiting.extendleft(reversed(found))  # for the next attempt
            raise
        return found

    def _fail(self, kept: list[_Emitted]) -> None:
        why = Failure(Cause.FAILED, reason="its batch is emitted again")
        for one in kept:
            if one.message_id is not None:
                self._say(self._spout.fail, one.message_id, why)

    def _say(self, tell: Callable[..., None], *about: Any) -> None:
        """Call `ack` or `fail` of the spout; log what it raises, since that concerns no batch."""
        try:
            tell(*about)
        except Exception:
            _LOG.exception("%s of %s", tell.__name__, type(self._spout).__name__)

    def _tell_end(self, txid: int) -> None:
        """Store after which batch there are no more rows, before any row of this one is sent."""
        later = any(rows for kept, rows in self._kept.items() if kept > txid)
        at_end = self._out.finished and not (self._out.waiting or later)
        ended = self._said
        if not at_end and ended <= txid:
            ended = 0
        elif at_end and (not ended or ended > txid):
            ended = txid
        if ended != self._said:
            try:
                self._version = self._tree.set(
                    self._ended, encode(ended, self._ended), self._version
                )
            except WrongVersion as error:
                raise StaleAttempt(f"{self._ended}: another life of this task has begun") from error
            self._said = ended
