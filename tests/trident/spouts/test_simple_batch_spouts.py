"""Batch spouts without partitions, and which objects can be used as a batch spout."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, NamedTuple

import pytest

from sunshower.errors import ConfigError, IncompleteBatch, TopologyError
from sunshower.topologies.components import Spout
from sunshower.topologies.sources import Records, TextFiles
from sunshower.topologies.topology import Topology
from sunshower.trident.declaration.declare import as_trident_spout
from sunshower.trident.spouts.bounds import Bounds
from sunshower.trident.spouts.fixed import FeederBatchSpout, FixedBatchSpout
from sunshower.trident.spouts.ordinary_spouts import PlainSpout
from sunshower.trident.spouts.port import BatchSpout, Rows, SpoutKind
from tests.trident.rigs.emitting import Drive

SEVEN = [(n,) for n in range(7)]


class Word(NamedTuple):
    text: str


def test_seven_values_at_size_three_are_three_three_one_and_then_empty_batches() -> None:
    drive = Drive(FixedBatchSpout(SEVEN, 3, fields=["n"]))
    assert [len(drive.batch(txid)) for txid in range(1, 6)] == [3, 3, 1, 0, 0]
    assert [drive.is_last(txid) for txid in range(1, 6)] == [False, False, True, True, True]


def test_a_batch_is_the_same_until_its_success_also_in_another_life() -> None:
    drive = Drive(FixedBatchSpout(SEVEN, 3, fields=["n"]))
    assert drive.emit(1) == SEVEN[:3]
    assert drive.emit(2) == SEVEN[3:6]
    assert drive.emit(1, attempt=1) == SEVEN[:3]
    drive.restart()
    assert drive.emit(2, attempt=1) == SEVEN[3:6]


def test_a_cycle_starts_over_at_the_end_and_not_before() -> None:
    drive = Drive(FixedBatchSpout(SEVEN, 3, fields=["n"], cycle=True))
    assert [len(drive.batch(txid)) for txid in range(1, 7)] == [3, 3, 1, 3, 3, 1]
    assert not any(drive.is_last(txid) for txid in range(1, 7))


def test_an_invalid_fixed_batch_spout_is_refused() -> None:
    with pytest.raises(TopologyError, match="size is 0"):
        FixedBatchSpout(SEVEN, 0)
    with pytest.raises(TopologyError, match="it has no rows to repeat"):
        FixedBatchSpout([], 3, cycle=True)


def test_each_feed_of_a_feeder_is_a_batch_for_all_its_copies() -> None:
    feeder = FeederBatchSpout(fields=["n"])
    drive = Drive(deepcopy(feeder))
    assert not drive.coordinator.is_ready(1)
    feeder.feed(SEVEN[:2])
    assert drive.coordinator.is_ready(1)
    assert drive.emit(1) == SEVEN[:2]
    assert drive.coordinator.is_ready(1), "batch 1 is not committed, and may be emitted again"
    assert not drive.coordinator.is_ready(2)
    assert drive.batch(1, attempt=1) == SEVEN[:2]
    assert not drive.is_last(1)
    feeder.end()
    assert drive.coordinator.is_ready(2)
    assert drive.batch(2) == []
    assert drive.is_last(2)
    assert feeder.committed == [1, 2]


def test_a_feeder_cannot_go_to_another_process() -> None:
    with pytest.raises(ConfigError, match="several processes"):
        pickle.dumps(FeederBatchSpout(fields=["n"]))


class Counted(BatchSpout):
    emits = ("n",)
    kind = SpoutKind.TRANSACTIONAL

    def __init__(self) -> None:
        self.acked: list[int] = []

    def emit_batch(self, txid: int, rows: Rows) -> None:
        rows.emit([(txid, index) for index in range(txid)])

    def ack(self, txid: int) -> None:
        self.acked.append(txid)

    def is_last(self, txid: int) -> bool:
        return txid == 3


def test_a_batch_spout_emits_and_acks_by_txid() -> None:
    drive = Drive(Counted())
    assert [len(rows) for rows in drive.run()] == [1, 2, 3]
    assert drive.emitters[0]._spout.acked == [1, 2, 3]
    assert (drive.spout.kind, drive.spout.parallelism_max) == (SpoutKind.TRANSACTIONAL, 1)


class TextSpout(Spout[Word]):
    """Yields its texts, and None for a pause; raises once before the text at `fail_at`."""

    def __init__(self, *texts: str | None, fail_at: int | None = None) -> None:
        self.texts = texts
        self.fails = [] if fail_at is None else [fail_at]
        self.lives: list[int] = []

    def __deepcopy__(self, memo: Any) -> TextSpout:
        self.lives.append(0)
        return self

    def records(self) -> Iterator[Word | None]:
        for at, text in enumerate(self.texts):
            if at in self.fails:
                self.fails.remove(at)
                raise OSError("away")
            yield None if text is None else Word(text)


def words(rows: list[Any]) -> str:
    return "".join(row.text for row in rows)


def plain(spout: Spout[Any], records: int = 3, **more: Any) -> PlainSpout:
    return PlainSpout(spout, bounds=Bounds(records=records), **more)


def test_a_plain_spout_emits_full_batches_and_smaller_ones_when_it_has_no_records() -> None:
    drive = Drive(plain(TextSpout("a", "b", "c", "d", None, "e", None, None, "f")))
    assert [words(rows) for rows in drive.run()] == ["abc", "d", "e", "", "f"]
    assert drive.spout.kind is SpoutKind.NON_TRANSACTIONAL
    assert drive.spout.emits is Word


def test_a_plain_spout_emits_a_failed_batch_again_and_continues_after_it() -> None:
    drive = Drive(plain(TextSpout(*"abcdefg")))
    assert [words(drive.emit(txid)) for txid in (1, 2)] == ["abc", "def"]
    assert [words(drive.emit(txid, 1)) for txid in (1, 2, 3)] == ["abc", "def", "g"]


def test_a_restarted_plain_spout_skips_the_records_that_were_emitted() -> None:
    spout = TextSpout("a", None, *"bcdefg")
    drive = Drive(plain(spout))
    assert [words(drive.batch(txid)) for txid in (1, 2)] == ["a", "bcd"]
    drive.restart()
    assert words(drive.emit(3)) == "efg"
    drive.restart()
    assert words(drive.emit(3, 1)) == "efg"


def test_a_plain_spout_whose_records_raise_continues_where_it_was() -> None:
    drive = Drive(plain(TextSpout(*"abcde", fail_at=4)))
    assert words(drive.batch(1)) == "abc"
    with pytest.raises(OSError, match="away"):
        drive.emit(2)
    assert words(drive.emit(2, 1)) == "de"
    assert drive.is_last(2)


def test_lost_records_of_a_plain_spout_are_reported() -> None:
    spout = TextSpout(*"abcde")
    drive = Drive(plain(spout))
    drive.emit(1)
    spout.texts = ("a",)
    drive.restart()
    with pytest.raises(IncompleteBatch, match="records 0 to 2, and now ends after 1"):
        drive.emit(1, 1)


class Tables(Spout[Word]):
    def tables(self) -> Iterator[None]:
        yield None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Tables(), r"Tables has no records\(\)"),
        (Counted, "the class Counted makes no batches"),
        (7, "7 makes no batches: give an instance of a BatchSpout"),
        (Topology("t"), "makes no batches"),
    ],
)
def test_an_object_that_makes_no_batches_is_refused_with_the_alternatives(
    value: Any, message: str
) -> None:
    with pytest.raises(TopologyError, match=message):
        as_trident_spout(value)


def test_a_trident_spout_is_not_wrapped(tmp_path: Any) -> None:
    fixed = FixedBatchSpout(SEVEN, 3)
    assert as_trident_spout(fixed) is fixed
    assert as_trident_spout(Records([Word("a")])).kind is SpoutKind.NON_TRANSACTIONAL
    (tmp_path / "a").write_text("x\n")
    assert as_trident_spout(TextFiles(tmp_path / "a")).kind is SpoutKind.TRANSACTIONAL


class Live(Spout[Word]):
    """Yields the texts there are, and after them None without end."""

    def __init__(self) -> None:
        self.texts = list("abcde")
        self.asked = 0

    def __deepcopy__(self, memo: Any) -> Live:
        return self

    def records(self) -> Iterator[Word | None]:
        at = 0
        while True:
            self.asked += 1
            if self.asked > 100_000:
                raise OSError("asked without end")
            if at < len(self.texts):
                at += 1
                yield Word(self.texts[at - 1])
            else:
                yield None


@pytest.mark.parametrize("repeats", [True, False])
def test_a_live_source_that_has_less_than_before_is_not_waited_for(repeats: bool) -> None:
    live = Live()
    drive = Drive(plain(live, repeats=repeats))
    assert [words(drive.batch(txid)) for txid in (1, 2)] == ["abc", "de"]
    live.texts = list("ab")
    drive.restart()
    assert words(drive.batch(3)) == ""
    live.texts = list("abcdefgh")
    assert [words(drive.batch(txid)) for txid in (4, 5)] == ["fgh", ""]
    assert live.asked < 1_000


def test_a_batch_that_a_live_source_cannot_repeat_is_reported_as_incomplete() -> None:
    live = Live()
    drive = Drive(plain(live, repeats=True))
    drive.batch(1)
    assert words(drive.emit(2)) == "de"
    live.texts = list("ab")
    drive.restart()
    before_s = drive.clock.now()
    with pytest.raises(IncompleteBatch, match="records 3 to 4, and now gives but 2 soon"):
        drive.emit(2, 1)
    assert drive.clock.now() - before_s < 15
    live.texts = list("abcdefgh")
    assert words(drive.emit(2, 2)) == "de"
    assert words(drive.emit(3)) == "fgh"
