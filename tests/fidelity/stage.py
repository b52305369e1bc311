"""A spout, bolts and ackers in one process, which a test moves step by step, in any order.

s = Stage(topology)      opens and prepares all tasks
s.emit()                 the spout emits; the start of its tree waits
s.process("bolt")        a bolt processes its inputs; its reports wait
s.deliver()              the waiting reports reach the ackers, and their verdicts the spout
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sunshower import Bolt, Collector, Context, Failure, Spout, SpoutCollector, Topology, Tuple
from sunshower.runtime.tracking.ids import U64
from sunshower.runtime.tracking.ledger import Verdicts
from sunshower.runtime.tracking.reports import ShardReport
from tests.runtime.rig import Rig


class Word(NamedTuple):
    word: str


Script = Callable[[Tuple[Word], Collector[Word]], None]
Call = tuple[Any, ...]


class Words(Spout[Word]):
    """Emits each word with itself as message id, and records acks and failures. Never replays."""

    replay = False

    def __init__(self, *words: str | None) -> None:
        self.words = words

    def open(self, context: Context) -> None:
        self.calls: list[Call] = []
        self.left = list(self.words)

    def next_tuple(self, out: SpoutCollector[Word]) -> None:
        if self.left:
            word = self.left.pop(0)
            out.emit(Word("untracked" if word is None else word), word)

    def ack(self, message_id: str) -> None:
        self.calls.append(("ack", message_id))

    def fail(self, message_id: str, failure: Failure) -> None:
        self.calls.append(("fail", message_id, str(failure)))


class Scripted(Bolt[Word, Word]):
    """A manual bolt that calls a function of the test."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def execute(self, tuple: Tuple[Word], out: Collector[Word]) -> None:
        self.script(tuple, out)


def pass_on(tuple: Tuple[Word], out: Collector[Word]) -> None:
    """The usual bolt in Storm: emit anchored, then ack."""
    out.emit(tuple.record, tuple)
    out.ack(tuple)


def end(record: Word) -> None:
    """A bolt that only acks."""


def chain(*scripts: Script, words: tuple[str | None, ...] = ("rain",), **settings: Any) -> Topology:
    """The topology words ──▶ bolt1 ──▶ bolt2 … ──▶ end."""
    topology = Topology("stage", **{"ackers": 1, "message_timeout_s": 30, **settings})
    stream: Any = topology.spout("words", Words(*words))
    for number, script in enumerate(scripts, start=1):
        stream = stream.shuffle().bolt(f"bolt{number}", Scripted(script))
    stream.shuffle().bolt("end", end)
    return topology


class Stage(Rig):
    """All tasks of a topology, its time and its waiting reports."""

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology)
        self.now = 0.0

    @property
    def words(self) -> Any:
        """The spout's task."""
        return self.spout("words")

    @property
    def calls(self) -> list[Call]:
        """The acks and failures that the spout has received so far."""
        calls: list[Call] = self.words.spout.calls
        return calls

    @property
    def pending(self) -> U64:
        """The roots that are pending in the spout."""
        roots: U64 = self.words.pending.all_roots()
        return roots

    def emit(self, limit: int = 100) -> None:
        self.words.emit(self.now, limit)

    def process(self, *bolts: str) -> None:
        for bolt in bolts:
            for batch in self.sent(bolt):
                self.bolt(bolt).process(batch)

    def take(self) -> dict[int, ShardReport]:
        """The reports since the last call, so that the test can deliver them later."""
        return self.wired.reports.take()

    def deliver(self, reports: dict[int, ShardReport] | None = None) -> None:
        """Deliver `reports`, or all that wait now."""
        for acker, report in (self.take() if reports is None else reports).items():
            for verdicts in self.wired.ackers[acker].apply(report, 0.0).values():
                self.tell(verdicts)

    def tell(self, verdicts: Verdicts) -> None:
        """Give the verdicts of an acker to the spout."""
        for roots in verdicts.complete:
            self.words.complete(roots, self.now)
        for root, failure in verdicts.failed:
            self.words.failed(np.array([root], np.uint64), failure, self.now)

    def wait(self, seconds: float) -> None:
        """Advance the time of the spout, and let it check its deadlines."""
        self.now += seconds
        self.words.look(self.now)
