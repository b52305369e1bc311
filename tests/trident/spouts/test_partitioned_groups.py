"""Partitioned spouts: tasks that die, partitions that move, and attempts that are repeated."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.errors import FailedBatch, StaleAttempt, StateMismatch
from sunshower.state.tree import MemoryForest, MemoryTree
from sunshower.topologies.operators.port import Attempt
from sunshower.trident.coordination.transactional_log import JsonNode
from sunshower.trident.spouts.partition_emitters import (
    NOTHING,
    CommittedBatches,
    OpaqueEmitter,
    PartitionLog,
    _entry,
    places,
)
from sunshower.trident.spouts.reached_times import PartitionAt
from tests.trident.rigs.emitting import CollectedRows, Drive
from tests.trident.rigs.numbers import OpaqueRowBatches, RowBatches, items
from tests.trident.rigs.partitioned_group import (
    Group,
    Logs,
    Opaque,
    Row,
    Transactional,
    faulty_group,
    numbers_of,
)

BOTH = pytest.mark.parametrize("kind", [Transactional, Opaque])


def check(group: Group) -> None:
    """Assert that each row is in one committed batch, in order; the same rows, if transactional."""
    for name, numbers in numbers_of(group).items():
        assert numbers == [*range(group.logs.length[name])], name
    if not group.spout.commits:
        assert not {
            where: attempts for where, attempts in group.emitted.items() if len(attempts) > 1
        }


@BOTH
@given(seed=st.integers(0, 2**32), steps=st.integers(10, 250))
def test_each_row_is_in_one_committed_batch_whatever_happens(
    kind: type[Any], seed: int, steps: int
) -> None:
    check(faulty_group(kind, Random(seed), steps))


def commit_unchecked(self: OpaqueEmitter, attempt: Attempt) -> None:
    held = self._held.get(attempt.txid)
    for name, metadata in held.metadata.items() if held else ():
        self._look(name).keep(attempt, metadata)


def keep_unchecked(
    self: PartitionLog, attempt: Attempt, metadata: Any, at: PartitionAt | None = None
) -> None:
    self._nodes()[attempt.txid] = node = JsonNode(self._tree, self._path_of(attempt.txid))
    node.read()
    node.write(_entry(attempt, metadata, at))


RULES: dict[str, tuple[type[Any], Any, str, Any]] = {
    "a new owner continues from what is committed": (
        *(Opaque, CommittedBatches, "includes"),
        lambda *_: True,
    ),
    "the same, transactional": (Transactional, CommittedBatches, "includes", lambda *_: True),
    "a commit of unknown batches": (
        *(Opaque, OpaqueEmitter, "commit"),
        commit_unchecked,
    ),
    "an old attempt overwrites a new one": (Opaque, PartitionLog, "keep", keep_unchecked),
    "a second life overwrites the first": (
        *(Transactional, PartitionLog, "keep_first"),
        keep_unchecked,
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_breaking_a_rule_is_detected(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, where, name, broken = RULES[rule]
    monkeypatch.setattr(where, name, broken)
    for seed in range(150):
        try:
            check(faulty_group(kind, Random(seed), 150))
        except AssertionError:
            return
    pytest.fail("no seed of 150 has found it")


# ---- single cases -------------------------------------------------------------------------------


class AlwaysThree(Random):
    """Always draws 3."""

    def randint(self, a: int, b: int) -> int:
        return 3


def logs() -> Logs:
    """One listed partition, with batches of three rows."""
    partition_logs = Logs(AlwaysThree())
    partition_logs.listed = {"t@0"}
    return partition_logs


def numbers(rows: Sequence[Row]) -> list[int]:
    return [number for _, number in rows]


def test_a_new_life_emits_nothing_until_the_batches_of_the_former_one_are_committed() -> None:
    """In Storm, the new owner reads the store, and emits again what is not committed yet."""
    drive = Drive(Opaque(logs()))
    drive.emit(1)
    drive.restart()
    assert drive.emit(2) == [], "the new life does not know where batch 1 ends"
    with pytest.raises(FailedBatch, match="started again and does not know"):
        drive.commit(1)
    first = drive.batch(1, 1)
    second = drive.batch(2, 1)
    assert numbers(first + second) == [*range(len(first + second))]
    assert second


def test_a_new_life_continues_at_once_if_the_master_has_stored_that_all_is_committed() -> None:
    drive = Drive(Opaque(logs()))
    before = drive.batch(1) + drive.batch(2)
    drive.restart()
    drive.tree.create("/transactional/s/coordinator/currtx", b"3")
    after = drive.batch(3)
    assert after
    assert numbers(before + after) == [*range(len(before + after))]


@BOTH
def test_a_partition_moves_to_another_task_while_batches_are_in_progress(kind: type[Any]) -> None:
    drive = Drive(kind(logs()), tasks=2)
    orders = [{"txid": txid, "partitions": ["t@0"], "gone": []} for txid in (1, 2, 3)]
    orders[1]["partitions"] = [None, "t@0"]  # from batch 2 on it is the other task's
    orders[2]["partitions"] = [None, "t@0"]
    taken = [CollectedRows(), CollectedRows(), CollectedRows()]
    slower, other = drive.emitters
    for emitter, txids in ((other, (1, 2)), (slower, (1, 2))):  # `other` is faster
        for txid in txids:
            emitter.emit_batch(Attempt(txid, 0, 1), orders[txid - 1], taken[txid - 1])
    assert numbers(taken[0].rows) == [0, 1, 2]
    assert numbers(taken[1].rows) == []
    for txid in (1, 2):
        for emitter in drive.emitters:
            emitter.commit(Attempt(txid, 0, 1))
        for emitter in drive.emitters:
            emitter.success(Attempt(txid, 0, 1))
    for emitter in drive.emitters:
        emitter.emit_batch(Attempt(3, 0, 1), orders[2], taken[2])
    assert numbers(taken[2].rows) == [3, 4, 5]


def test_partitions_keep_their_places_while_others_come_and_go() -> None:
    assert places([], {"c", "a", "b"}) == ["a", "b", "c"]
    assert places(["a", "b", "c"], {"a", "c"}) == ["a", None, "c"]
    assert places(["a", None, "c"], {"a", "c", "0", "d"}) == ["a", "0", "c", "d"]


def test_a_repeated_attempt_of_a_transactional_batch_has_the_same_partitions() -> None:
    read = logs()
    read.listed = {"t@0", "t@1", "t@2"}
    drive = Drive(Transactional(read))
    first = drive.order(1)
    read.listed = {"t@4"}
    assert drive.order(1) == first
    assert drive.order(2)["partitions"] == ["t@4", None, None]


@BOTH
@pytest.mark.parametrize("metadata", [3, [], {"txid": 1}])
def test_invalid_metadata_are_refused_with_the_name_of_their_node(
    kind: type[Any], metadata: Any
) -> None:
    drive = Drive(kind(logs()))
    drive.metadata[1] = metadata
    with pytest.raises(StateMismatch, match=r"/coordinator/meta/1 holds .*, which is not like"):
        drive.order(2)
    with pytest.raises(StateMismatch, match=r"/coordinator/meta/1 holds .*, which is not like"):
        drive.order(1)


def test_positions_that_an_earlier_attempt_wrote_for_a_vanished_partition_are_discarded() -> None:
    read = logs()
    read.length = {"t@0": 5, "t@1": 0}
    drive = Drive(Opaque(read))
    drive.emit(1)
    drive.commit(1)  # other tasks do not commit: the attempt fails
    read.listed = {"t@1"}
    assert drive.batch(1, 1) == []
    read.listed = {"t@0", "t@1"}
    rows = [row for txid in range(2, 30) for row in drive.batch(txid)]
    assert rows == [("t@0", number) for number in range(5)]


def test_a_former_life_cannot_overwrite_a_later_one() -> None:
    tree = MemoryTree(MemoryForest())
    former, later = PartitionLog(tree, "/s/user", "a/b"), PartitionLog(tree, "/s/user", "a/b")
    later.keep(Attempt(3, 1, 1), {"end": 9})
    with pytest.raises(StaleAttempt, match="%2Fb/3 was written in attempt 1 of coordinator 1"):
        former.keep(Attempt(3, 0, 1), {"end": 5})
    former.keep(Attempt(3, 0, 2), {"end": 7})
    with pytest.raises(FailedBatch, match="by another life"):
        later.keep_first(Attempt(3, 9, 9), {"end": 1})
    assert PartitionLog(tree, "/s/user", "a/b")[3] == {"end": 7}


def test_positions_that_storm_has_stored_are_read_and_overwritten() -> None:
    tree = MemoryTree(MemoryForest())
    tree.create("/s/user/topic@0/7", b'{"firstOffset": 5, "lastOffset": 9}')
    tree.create("/s/user/topic@0/8", b"null")
    log = PartitionLog(tree, "/s/user", "topic@0")
    assert log[8] is NOTHING
    assert log.before(9) == {"firstOffset": 5, "lastOffset": 9}
    log.keep(Attempt(8, 0, 1), {"firstOffset": 10, "lastOffset": 11})
    log.cleanup(8)
    assert tree.children("/s/user/topic@0") == ["8"]


def test_a_partition_without_new_rows_is_written_only_to_replace_an_earlier_attempt() -> None:
    read = logs()
    read.length["t@0"] = 3
    drive = Drive(Opaque(read))
    assert len(drive.batch(1)) == 3
    assert [drive.batch(txid) for txid in (2, 3, 4)] == [[], [], []]
    assert drive.tree.children("/transactional/s/user/t@0") == ["2"], "the entry for no rows"
    drive.emit(5)
    assert drive.batch(5, 1) == []
    assert drive.tree.children("/transactional/s/user/t@0") == ["5"]


def test_nothing_is_written_for_a_partition_at_its_end() -> None:
    for kind in (RowBatches, OpaqueRowBatches):
        drive = Drive(kind(items(5), 10, partitions=2))
        assert len(drive.batch(1)) == 5
        assert drive.is_last(1)
        for txid in (2, 3, 4):
            assert drive.batch(txid) == []
            assert drive.is_last(txid)
        assert drive.tree.children("/transactional/s/user/0") == ["1"]


def test_repeats_of_an_opaque_batch_differ_and_all_rows_come_once() -> None:
    drive = Drive(OpaqueRowBatches(items(100), 10))
    assert len({len(drive.emit(1, attempt)) for attempt in range(5)}) > 2
    rows: list[Any] = []
    for txid in range(1, 40):
        drive.emit(txid, 7)
        rows += drive.batch(txid, 8)
    assert [row.number for row in rows] == [*range(100)]
