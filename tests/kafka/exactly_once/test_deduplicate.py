"""Each key counts once: in memory, after restarts with a store, and in a Kafka topic."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower import Bolt, Context
from sunshower.dev.kafka import Kafka
from sunshower.errors import ConfigError, StoreError, StoreUnreachable, TopologyError, UnknownField
from sunshower.kafka.exactly_once.deduplicate import Deduplicated, KeyCache, deduplicate
from sunshower.kafka.producing.kafka_bolt import SoleWriterBolt
from sunshower.records import Schema
from sunshower.state.sqlite_tree import SqliteTree
from sunshower.state.tree import MemoryForest, MemoryTree, Node
from sunshower.topologies.signatures import tick_of
from tests.kafka.producing.rig import BoltRig, paused
from tests.kafka.topics import new_topic, read_all, values_of


class Sale(NamedTuple):
    id: int
    item: str


class Count(Bolt[Sale, None]):
    def prepare(self, context: Context) -> None:
        self.counts: Counter[str] = Counter()

    def process(self, record: Sale) -> None:
        self.counts[record.item] += 1

    def snapshot(self) -> Counter[str]:
        return self.counts

    def restore(self, state: Counter[str]) -> None:
        self.counts = Counter(state)

    def result(self) -> Counter[str]:
        return self.counts


CONTEXT = Context("shop", "count", 1, 0, 1)


def open_bolt(tree: Callable[[], Any] | None = None, memory: int = 1000) -> Deduplicated:
    bolt = deduplicate("id", Count(), memory=memory, store=tree)
    bolt.prepare(CONTEXT)
    return bolt


def feed(bolt: Deduplicated, *sales: Sale) -> None:
    for sale in sales:
        bolt.process(sale)
    bolt.flush()


# ---- the memory ---------------------------------------------------------------------------------


@given(st.integers(1, 5), st.lists(st.lists(st.integers(0, 9)), max_size=20))
def test_memory_holds_the_newest_keys_and_no_more(memory: int, batches: list[list[int]]) -> None:
    seen = KeyCache(memory)
    for batch in batches:
        seen.add(batch)
    newest = list(dict.fromkeys(reversed([key for batch in batches for key in batch])))[:memory]
    assert seen.keys() == newest[::-1]
    assert len(seen) <= memory
    assert all(key in seen for key in newest)


def test_a_memory_of_zero_keys_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        deduplicate("id", Count(), memory=0)


# ---- in front of a bolt -------------------------------------------------------------------------


def test_repeats_are_dropped_within_a_batch_and_later() -> None:
    bolt = open_bolt()
    feed(bolt, Sale(1, "tea"), Sale(1, "tea"), Sale(2, "tea"))
    feed(bolt, Sale(2, "tea"), Sale(3, "milk"))
    assert bolt.result() == {"tea": 2, "milk": 1}
    assert bolt.figures() == {"repeats": 2}


def test_a_key_that_was_evicted_from_memory_counts_again() -> None:
    bolt = open_bolt(memory=2)
    for id in (1, 2, 3, 1):
        feed(bolt, Sale(id, "tea"))
    assert bolt.result() == {"tea": 4}


class Raising(Count):
    def process(self, record: Sale) -> None:
        if record.item == "poison":
            raise ValueError(record)
        super().process(record)


def test_a_record_that_raised_is_no_repeat_when_it_comes_again() -> None:
    bolt = deduplicate("id", counting := Raising())
    bolt.prepare(CONTEXT)
    with pytest.raises(ValueError, match="poison"):
        bolt.process(Sale(1, "poison"))
    feed(bolt, Sale(1, "tea"))
    assert counting.counts == {"tea": 1}


def test_keys_are_part_of_the_snapshot_of_a_task_that_moves() -> None:
    bolt = open_bolt()
    feed(bolt, Sale(1, "tea"))
    moved = open_bolt()
    moved.restore(bolt.snapshot())
    feed(moved, Sale(1, "tea"), Sale(2, "tea"))
    assert moved.result() == {"tea": 2}


def test_only_a_bolt_with_a_snapshot_can_be_deduplicated() -> None:
    class WithoutSnapshot(Bolt[Sale, None]):
        def process(self, record: Sale) -> None: ...

    with pytest.raises(TopologyError, match="has no snapshot"):
        deduplicate("id", WithoutSnapshot())
    with pytest.raises(UnknownField, match="price"):
        deduplicate("price", Count()).check_input(Schema.of(Sale))


def test_a_function_makes_the_key_of_plain_tuples_with_different_names() -> None:
    bolt = deduplicate(lambda record: record[0], Count())
    for fields in (("id", "product"), ("id", "price")):
        bolt.check_input(Schema(fields))
    bolt.prepare(CONTEXT)
    assert bolt.key_of((7, "tea")) == 7


# ---- restarts -----------------------------------------------------------------------------------


def test_each_key_counts_once_whenever_the_process_dies(tmp_path: Path) -> None:
    """The process dies before or after it stores a batch; an unacked batch is replayed."""
    random_numbers = random.Random(7)
    sales = [Sale(number, f"item {number % 5}") for number in range(200)]
    left = list(sales)
    bolt = open_bolt(lambda: SqliteTree(tmp_path / "store"))
    while left:
        batch = [random_numbers.choice(left[:20]) for _ in range(5)]
        for sale in batch:
            bolt.process(sale)
        chance = random_numbers.random()
        if chance > 0.2:  # else it dies before the batch is stored
            bolt.flush()
        if chance > 0.4:  # else it dies before the batch is acked
            left = [sale for sale in left if sale not in batch]
            continue
        bolt.cleanup()
        bolt = open_bolt(lambda: SqliteTree(tmp_path / "store"))
    assert bolt.result() == {f"item {number}": 40 for number in range(5)}
    bolt.cleanup()


def test_a_zombie_counts_nothing_twice() -> None:
    forest = MemoryForest()
    earlier, successor = (open_bolt(lambda: MemoryTree(forest)) for _ in range(2))
    feed(earlier, Sale(1, "tea"))
    with pytest.raises(StoreError):
        feed(successor, Sale(1, "tea"))  # the batch fails, and is replayed below
    feed(successor, Sale(1, "tea"), Sale(2, "tea"))
    with pytest.raises(StoreError):
        feed(earlier, Sale(2, "tea"))
    feed(earlier, Sale(2, "tea"))
    assert earlier.result() == {"tea": 2}


class UnreliableTree(MemoryTree):
    """A store that cannot be reached for a while."""

    is_unavailable = False

    def get(self, path: str) -> Node | None:
        self._reach()
        return super().get(path)

    def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False) -> None:
        self._reach()
        super().create(path, value, ephemeral=ephemeral)

    def set(self, path: str, value: bytes, version: int | None = None) -> int:
        self._reach()
        return super().set(path, value, version)

    def _reach(self) -> None:
        if self.is_unavailable:
            raise StoreUnreachable("no answer")


@pytest.mark.parametrize("before", [(), (Sale(0, "tea"),)])
def test_an_unavailable_store_makes_nothing_count_twice(before: tuple[Sale, ...]) -> None:
    store = UnreliableTree(MemoryForest())
    bolt = open_bolt(lambda: store)
    feed(bolt, *before)
    store.is_unavailable = True
    with pytest.raises(StoreUnreachable):
        feed(bolt, Sale(1, "tea"))
    for _ in range(2):  # replays while the store is still unavailable
        with pytest.raises(StoreUnreachable):
            bolt.process(Sale(1, "tea"))
        with pytest.raises(StoreUnreachable):
            bolt.flush()
    store.is_unavailable = False
    feed(bolt, Sale(1, "tea"), Sale(2, "tea"))
    feed(bolt, Sale(1, "tea"))
    assert bolt.result() == {"tea": 2 + len(before)}


class Clearing(Count):
    tick_s = 0.25

    def tick(self) -> None:
        self.counts.clear()


def test_a_tick_reaches_the_bolt() -> None:
    bolt = deduplicate("id", Clearing())
    assert tick_of(bolt, None, "here") == 0.25
    bolt.prepare(CONTEXT)
    feed(bolt, Sale(1, "tea"))
    bolt.tick()
    feed(bolt, Sale(1, "tea"), Sale(2, "milk"))
    assert bolt.result() == {"milk": 1}
    assert tick_of(deduplicate("id", Count()), None, "here") is None


def test_a_tick_sees_no_part_of_a_failed_batch() -> None:
    store = UnreliableTree(MemoryForest())
    bolt = deduplicate("id", Clearing(), store=lambda: store)
    bolt.prepare(CONTEXT)
    store.is_unavailable = True
    with pytest.raises(StoreUnreachable):
        feed(bolt, Sale(1, "tea"))
    with pytest.raises(StoreUnreachable):
        bolt.tick()
    store.is_unavailable = False
    bolt.tick()
    feed(bolt, Sale(1, "tea"))
    assert bolt.result() == {"tea": 1}


# ---- at the end of a topic ----------------------------------------------------------------------


def sole_writer(kafka: Kafka, topic: str, **settings: Any) -> SoleWriterBolt:
    base = {"bootstrap.servers": kafka.bootstrap}
    return SoleWriterBolt(base | settings, topic, id="id", value="item", memory=50)


def test_messages_that_arrived_before_a_restart_are_not_sent_again(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap, 2)
    sales = [Sale(number, f"{number:03}") for number in range(30)]
    before = BoltRig(sole_writer(kafka, topic))
    before.take(*sales[:20])
    before.bolt._producer.flush(60)  # they have arrived; the process dies before they are acked
    after = BoltRig(sole_writer(kafka, topic))
    after.take(*sales)
    after.until(lambda out: len(out.acked) == 30)
    assert values_of(kafka.bootstrap, topic) == [sale.item for sale in sales]
    assert after.bolt.figures()["repeats"] == 20
    ids = {dict(m.headers() or ())["id"] for m in read_all(kafka.bootstrap, topic)}
    assert ids == {str(number).encode() for number in range(30)}


def test_a_repeat_of_an_unconfirmed_message_is_acked_or_failed_with_it(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap)
    driven = BoltRig(sole_writer(kafka, topic, **{"message.timeout.ms": 1000, "linger.ms": 0}))
    with paused(kafka):
        driven.take(Sale(1, "tea"), Sale(1, "tea"))
        assert driven.out.acked == []
        driven.until(lambda out: len(out.failed) == 2)
    driven.deliver(Sale(1, "tea"))  # the first one has failed, so this one is no repeat
    driven.take(Sale(1, "tea"))
    assert driven.out.acked == [Sale(1, "tea")] * 2
