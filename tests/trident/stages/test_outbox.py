"""The rows of committed batches are delivered once, in their order, whatever happens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from sunshower import Context, KeyState, Topology, run_inline
from sunshower.clock import ManualClock
from sunshower.errors import (
    StaleGeneration,
    StateMismatch,
    StoreUnreachable,
    TopologyError,
    TopologyFailed,
)
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState
from sunshower.topologies.operators.port import Attempt
from sunshower.trident import InMemory, StateKind, batches
from sunshower.trident.declaration.keyed_batches import delivered
from sunshower.trident.declaration.streams import BatchStream
from sunshower.trident.stages.outbox import Outbox
from tests.seeds import seeds
from tests.trident.rigs.moving_states import Life, MortalState, ProcessEnded
from tests.trident.rigs.numbers import Item, OpaqueRowBatches, RowBatches, items
from tests.trident.rigs.programs import SETTINGS, kill_three

TOTAL = 60


class Receiver:
    """Has rows, and the note of the last batch; the last one who opened it may deliver."""

    def __init__(self) -> None:
        self.life, self.draw = Life(), Random(0)
        self.rows: list[Any] = []
        self.note: tuple[str, int] = "", 0
        self.openings = 0
        self.is_away = False
        self.refuses: int | None = None
        self.failures = 0.0  # how often a delivery fails, before or after it has taken effect

    def __deepcopy__(self, memo: Any) -> Receiver:
        return self


class Sending:
    """A delivery to a receiver that keeps notes."""

    notes = True
    note, anew = "the note of the receiver", "another receiver"

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver

    def prepare(self, context: Context) -> None:
        self.number = 0

    def packed(self, rows: Sequence[Any]) -> Iterable[Any]:
        return [row.number for row in rows]

    @contextmanager
    def attempt(self) -> Iterator[None]:
        receiver = self.receiver
        if receiver.life.has_ended:
            raise ProcessEnded
        outcome = receiver.draw.random()
        if receiver.is_away or outcome < receiver.failures:
            raise StoreUnreachable("away")
        yield
        if outcome > 1 - receiver.failures:
            raise StoreUnreachable("the answer is lost")

    def open(self, batches: str) -> int:
        with self.attempt():
            self.receiver.openings += 1
            self.number, self.batches = self.receiver.openings, batches
            known, txid = self.receiver.note
        if txid and known != batches:
            raise StateMismatch("the note is that of another sink or program")
        return txid

    def deliver(self, txid: int, packed: Sequence[Any]) -> None:
        if self.receiver.refuses in packed:
            raise ValueError("this row is refused")
        with self.attempt():
            self.receiver.life.write(lambda: self._apply(txid, packed))

    def _apply(self, txid: int, packed: Sequence[Any]) -> None:
        if self.number != self.receiver.openings:
            raise StaleGeneration("another task has opened the receiver")
        assert txid > self.receiver.note[1]
        self.receiver.rows += packed
        self.receiver.note = self.batches, txid

    def close(self) -> None: ...


class Program:
    def __init__(self, kind: type[Any] = RowBatches) -> None:
        self.kind, self.receiver = kind, Receiver()
        self.state, self.store = MemoryState(name="rows"), InMemory()

    def topology(self, life: Life, **config: Any) -> Topology:
        self.receiver.life = life
        topology = Topology("delivering", **config)
        spout = self.kind(items(TOTAL), 5, partitions=2)
        about: Any = {"store": self.store, "max_batches": 2, "parallelism": 2}
        rows = batches(topology, "items", spout, **about).group_by("key")
        state = MortalState(self.state, life, self.state.kind, "rows")
        first = rows.process(each, state=MemoryState(), parallelism=2, name="each")
        BatchStream(delivered(first, Sending(self.receiver), state, "rows", "here"))
        return topology

    def run(self, life: Life) -> bool:
        """Run until the end, or until the process ends. Returns whether it is the end."""
        try:
            run_inline(self.topology(life).graph(), clock=ManualClock(), steps_max=50_000)
        except ProcessEnded:
            return False
        return True

    def check(self) -> None:
        assert sorted(self.receiver.rows) == [*range(TOTAL)]


def each(row: Item, _state: KeyState[int]) -> Iterator[Item]:
    yield row


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("kind", [RowBatches, OpaqueRowBatches])
def test_each_row_is_delivered_once_when_the_process_ends_at_any_write(
    kind: type[Any], *, is_after: bool
) -> None:
    for last in range(1, 1_000):
        program = Program(kind)
        if program.run(Life(last, is_after)):
            assert last > 10
            program.check()
            return
        assert program.run(Life())
        program.check()
    raise AssertionError("the run never completes")


@seeds(40)
def test_each_row_is_delivered_once_although_workers_and_the_receiver_fail(seed: int) -> None:
    program = Program((RowBatches, OpaqueRowBatches)[seed % 2])
    program.receiver.failures, program.receiver.draw = 0.1, Random(seed)
    topology = program.topology(Life(), workers=3, **SETTINGS)
    with SimCluster(seed, check=True) as cluster:
        run = cluster.submit(topology.graph())
        kill_three(run, seed, lambda number: 0.1 + 0.05 * (number % 7))
        program.receiver.is_away = True
        run.wait(1.0 + seed % 3)
        program.receiver.is_away = False
        assert run.wait(300.0)
    if program.receiver.note[1] == 0 or len(program.receiver.rows) < TOTAL:
        program.receiver.failures = 0.0  # an outage at the end: the next run delivers
        assert program.run(Life())
    program.check()


def test_a_later_run_delivers_what_an_outage_at_the_end_has_left() -> None:
    program = Program()
    program.receiver.failures = 1.0
    topology = program.topology(Life())
    with pytest.raises(Exception, match="away"):
        run_inline(topology.graph(), clock=ManualClock(), steps_max=20_000)
    assert not program.receiver.rows
    program.receiver.failures = 0.0
    assert program.run(Life())
    program.check()


def outbox_of(program: Program) -> Outbox:
    graph = program.topology(Life()).graph()
    stages = [component.implementation for component in graph.components.values()]
    nodes = [node for stage in stages for node in getattr(stage, "operators", ())]
    (outbox,) = (node for node in nodes if isinstance(node, Outbox))
    outbox.prepare(Context("delivering", "rows", 0, 0, 1))
    return outbox


def deliver(outbox: Outbox, attempt: Attempt, numbers: Iterable[int]) -> None:
    rows = [row for row in items(TOTAL) if row.number in numbers]
    batch = outbox.start(attempt)
    outbox.process(batch, 0, rows, lambda _: None)
    outbox.finish(batch, attempt, lambda _: None)


def test_only_the_last_attempt_of_a_batch_is_delivered() -> None:
    program = Program()
    outbox = outbox_of(program)
    deliver(outbox, Attempt(1, 0, 1), [1, 2])
    deliver(outbox, Attempt(1, 1, 1), [3])
    assert program.receiver.rows == []
    outbox.succeeded(1)
    assert program.receiver.rows == [3]
    deliver(outbox, Attempt(2, 0, 1), [4])
    deliver(outbox, Attempt(2, 1, 1), [])
    deliver(outbox, Attempt(3, 0, 1), [5])
    deliver(outbox, Attempt(4, 0, 1), [])
    assert program.receiver.rows == [3, 5]


def test_a_former_life_delivers_nothing_after_its_successor_has_begun() -> None:
    program = Program()
    former = outbox_of(program)
    deliver(former, Attempt(1, 0, 1), [1, 2])
    later = outbox_of(program)
    deliver(later, Attempt(1, 1, 1), [2])
    former.succeeded(1)  # it is refused, and reads what its successor has written
    later.succeeded(1)
    former.succeeded(1)
    assert program.receiver.rows == [2]


def test_a_note_that_is_lost_is_an_error() -> None:
    program = Program()
    outbox = outbox_of(program)
    for txid in (1, 2, 3):
        deliver(outbox, Attempt(txid, 0, 1), [txid])
    program.receiver.note = "", 0
    message = (
        "here, state 'rows'.*batch 2 was delivered, but the note of the receiver says nothing"
        ".*or give another receiver: then what is not delivered is left out"
    )
    with pytest.raises(TopologyFailed, match=message):
        deliver(outbox_of(program), Attempt(4, 0, 1), [4])


def test_nothing_is_delivered_again_after_an_end_in_order() -> None:
    """Although the receiver has no note any more; then what follows is delivered."""
    program = Program()
    assert program.run(Life())
    program.receiver.note = "", 0
    assert program.run(Life())
    program.check()
    assert program.receiver.note == ("", 0)
    assert not [*program.state.items()]


def test_the_note_of_another_sink_or_program_ends_the_topology() -> None:
    program, other = Program(), Program()
    assert program.run(Life())
    other.receiver = program.receiver
    with pytest.raises(TopologyFailed, match="is that of another sink or program"):
        other.run(Life())
    program.check()


@pytest.mark.parametrize("number", [17, TOTAL - 1])
def test_a_row_that_is_refused_after_its_commit_ends_the_topology(number: int) -> None:
    """Also one of the last batch. When the receiver is mended, each row is delivered once."""
    program = Program()
    program.receiver.refuses = number
    message = "here, state 'rows': batch [0-9]+ is committed, and cannot be delivered: .*is refused"
    with pytest.raises(TopologyFailed, match=message):
        program.run(Life())
    program.receiver.refuses = None
    assert program.run(Life())
    program.check()


def test_a_store_of_batches_that_was_rolled_back_is_an_error() -> None:
    program = Program()
    outbox = outbox_of(program)
    for txid in (1, 2, 3):
        deliver(outbox, Attempt(txid, 0, 1), [txid])
    with pytest.raises(TopologyFailed, match="batch 2 was delivered, but batch 2 is not"):
        deliver(outbox, Attempt(2, 1, 1), [2])


def test_a_state_that_is_not_opaque_is_refused() -> None:
    topology = Topology("delivering")
    rows = batches(topology, "items", RowBatches(items(4)), store=InMemory())
    state = MemoryState(StateKind.TRANSACTIONAL)
    with pytest.raises(TopologyError, match="here: a state of kind transactional"):
        delivered(rows, Sending(Receiver()), state, "rows", "here")
