"""The bolt `$spoutcoord-<spout>`: decides and stores the contents of each batch of a spout.

It stores metadata before it emits them; with windows of time downstream together with whether the
source has rows after the batch: {"$ended": true, "metadata": …}. Storm:
org.apache.storm.trident.spout.TridentSpoutCoordinator
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sunshower.errors import Unavailable
from sunshower.state.tree import Tree
from sunshower.topologies.components import Bolt, Collector, Context, Stateless, Tuple
from sunshower.trident.coordination.attempts import BATCH, SUCCESS, BatchCommand
from sunshower.trident.coordination.stored_progress import coordinator_path, meta_path
from sunshower.trident.coordination.transactional_log import TransactionalLog
from sunshower.trident.spouts.port import SpoutKind, TridentSpout

_ENDED = "$ended"


def ended_of(stored: Any) -> tuple[Any, bool]:
    """The metadata of a batch as stored, and whether it is known that the source has no rows after
    it."""
    if isinstance(stored, dict) and _ENDED in stored:
        return stored["metadata"], stored[_ENDED]
    return stored, False


class SpoutCoordinatorBolt(Stateless, Bolt[BatchCommand, Any]):
    """One task, which reads `$batch` and `$success` of the master."""

    __sunshower_batches__ = True  # its tasks cannot change while they run

    streams = {BATCH: BatchCommand}  # noqa: RUF012

    def __init__(
        self,
        id: str,
        spout: TridentSpout,
        store: Callable[[], Tree],
        root: str,
        *,
        ends_windows: bool = False,
    ) -> None:
        """`ends_windows`: windows of time are downstream, which the end of the source may end."""
        self._id = id
        self._ends_windows = ends_windows
        self._spout = spout
        self._store = store
        self._root = root

    def prepare(self, context: Context) -> None:
        """Open store and coordinator. Raises Unavailable during an outage of either."""
        self._tree = self._store()
        try:
            self._log = TransactionalLog(self._tree, meta_path(self._root, self._id))
            path = coordinator_path(self._root, self._id)
            self._coordinator = self._spout.coordinator(self._tree, path, context)
        except BaseException:
            self._tree.close()
            raise
        self._last = (0, 0)  # epoch and txid of the last `$success`

    def execute(self, tuple: Tuple[BatchCommand], out: Collector[Any]) -> None:
        command = tuple.record
        if tuple.stream == SUCCESS:
            self._succeeded(command)
        elif why := self._late(command):
            out.fail(tuple, f"attempt {command.attempt} of batch {command.txid} is void: {why}")
            return
        else:
            metadata, ended = self._metadata(command.txid, command.current)
            out.emit(command._replace(metadata=metadata, ended=ended), tuple, stream=BATCH)
        out.ack(tuple)

    def cleanup(self) -> None:
        self._coordinator.close()
        self._tree.close()

    def _metadata(self, txid: int, current: int) -> tuple[Any, bool]:
        """The metadata of a batch, and whether the source has no rows after it. The latter is
        decided once for a transactional batch: all attempts end the same windows."""
        log, known = self._log, txid in self._log
        previous, _ = ended_of(log.previous(txid))
        stored, ended = ended_of(log.get(txid))
        metadata = self._coordinator.initialize(txid, previous, stored)
        if self._ends_windows:
            if not (known and self._spout.kind is SpoutKind.TRANSACTIONAL):
                has_ended = getattr(self._coordinator, "has_ended", None)
                is_last = self._coordinator.is_last
                ended = has_ended(metadata, current) if has_ended else is_last(metadata)
            metadata = {_ENDED: ended, "metadata": metadata}
        log.override(txid, metadata)
        return ended_of(log.get(txid))

    def _late(self, command: BatchCommand) -> str:
        """Why a batch cannot begin; empty if it can. Metadata are created in txid order: if a
        former life of this task lost the preceding `$batch`, they would be based on the wrong
        predecessor."""
        epoch, succeeded = self._last
        if command.epoch < epoch:
            return "the coordinator has a new life"
        if command.epoch == epoch and command.txid <= succeeded:
            return "it is committed already"
        self._last = max(self._last, (command.epoch, 0))
        if command.txid > command.current and command.txid - 1 not in self._log:
            return "the one before it has not begun"
        return ""

    def _succeeded(self, command: BatchCommand) -> None:
        """Remove metadata from before this batch; its own are needed for the next one. After an
        outage the next batch removes them."""
        self._last = max(self._last, (command.epoch, command.txid))
        with suppress(Unavailable):
            self._log.cleanup_before(command.txid)
        self._coordinator.success(command.txid)
