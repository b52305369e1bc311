"""The bolt that says, and keeps, what each batch of a spout is made of: `$spoutcoord-<spout>`.

Metadata are in the store before anybody is told of them.
Storm: org.apache.storm.trident.spout.TridentSpoutCoordinator
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sunshower.errors import Unavailable
from sunshower.stores.tree import Tree
from sunshower.topologies.components import Bolt, Collector, Context, Tuple
from sunshower.trident.attempts import BATCH, SUCCESS, Order, Word
from sunshower.trident.rotating import RotatingState
from sunshower.trident.spouts.port import TridentSpout
from sunshower.trident.stored import coordinator_path, meta_path


class SpoutCoordinatorBolt(Bolt[Word, Any]):
    """One task, which hears `$batch` and `$success` of the master."""

    streams = {BATCH: Order}  # noqa: RUF012

    def __init__(self, id: str, spout: TridentSpout, store: Callable[[], Tree], root: str) -> None:
        self._id = id
        self._spout = spout
        self._store = store
        self._root = root

    def prepare(self, context: Context) -> None:
        """Raises Unavailable while the store or the source is away."""
        self._tree = self._store()
        try:
            self._state = RotatingState(self._tree, meta_path(self._root, self._id))
            path = coordinator_path(self._root, self._id)
            self._coordinator = self._spout.coordinator(self._tree, path, context)
        except BaseException:
            self._tree.close()
            raise
        self._last = (0, 0)  # epoch and txid of the last `$success`

    def execute(self, tuple: Tuple[Word], out: Collector[Any]) -> None:
        word = tuple.record
        if tuple.stream == SUCCESS:
            self._succeeded(word)
        elif why := self._late(word):
            out.fail(tuple, f"attempt {word.attempt} of batch {word.txid} is void: {why}")
            return
        else:
            metadata = self._metadata(word.txid)
            order = Order(*word[:4], metadata, word.why, word.current)
            out.emit(order, tuple, stream=BATCH)
        out.ack(tuple)

    def snapshot(self) -> None:
        """Nothing: all of it is in the store."""

    def restore(self, state: Any) -> None:
        """Nothing, likewise."""

    def cleanup(self) -> None:
        self._coordinator.close()
        self._tree.close()

    def _metadata(self, txid: int) -> Any:
        state = self._state
        made = self._coordinator.initialize(txid, state.previous(txid), state.get(txid))
        state.override(txid, made)
        return state.get(txid)

    def _late(self, word: Word) -> str:
        """Why a batch cannot begin; empty if it can. Metadata are made in the order of txids: the
        word of the batch before may have died with a former life of this task, and then metadata
        would be made of the wrong previous ones, and kept."""
        epoch, succeeded = self._last
        if word.epoch < epoch:
            return "the coordinator has a new life"
        if word.epoch == epoch and word.txid <= succeeded:
            return "it is committed already"
        self._last = max(self._last, (word.epoch, 0))
        if word.txid > word.current and word.txid - 1 not in self._state:
            return "the one before it has not begun"
        return ""

    def _succeeded(self, word: Word) -> None:
        """Metadata before those of this batch are never asked for again; its own are the previous
        ones of the next. What is not removed now is removed with the next batch."""
        self._last = max(self._last, (word.epoch, word.txid))
        with suppress(Unavailable):
            self._state.cleanup_before(word.txid)
        self._coordinator.success(word.txid)
