"""StoredProgress: Storm's nodes, fencing of former lives, and a store that does not answer."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import pytest

from sunshower.errors import StaleAttempt, StateMismatch, StoreUnreachable, VersionMismatch
from sunshower.failures import Cause, Failure
from sunshower.state.tree import MemoryForest, MemoryTree, Tree
from sunshower.trident.coordination.transactional_log import StoredProgress, packed_failure

ROOT = "/transactional"
A, B = f"{ROOT}/a/coordinator", f"{ROOT}/b/coordinator"


@pytest.fixture
def forest() -> MemoryForest:
    return MemoryForest()


def opened(tree: Tree | MemoryForest, *spouts: str) -> StoredProgress:
    if isinstance(tree, MemoryForest):
        tree = MemoryTree(tree)
    return StoredProgress(tree, ROOT, spouts or ("a",), "words")


def values(forest: MemoryForest, folder: str = A) -> list[bytes]:
    return [forest.nodes[f"{folder}/{name}"].value for name in ("currtx", "currattempts", "epoch")]


def test_it_begins_as_in_storm_with_the_first_batch(forest: MemoryForest) -> None:
    progress = opened(forest)
    assert (progress.current, progress.attempts, progress.epoch) == (1, {}, 1)
    assert values(forest) == [b"1", b"{}", b"1"]


def test_paths_and_values_are_storms(forest: MemoryForest) -> None:
    progress = opened(forest)
    progress.begin({1: 0, 2: 4})
    progress.committed(1)
    assert values(forest) == [b"2", b'{"1": 0, "2": 4}', b"1"]


def test_a_new_life_continues_with_the_stored_attempts(forest: MemoryForest) -> None:
    progress = opened(forest)
    progress.committed(6)
    progress.begin({6: 1, 7: 3, 8: 0})
    again = opened(forest)
    assert (again.current, again.attempts, again.epoch) == (7, {7: 3, 8: 0}, 2)


def test_how_often_batches_have_failed_is_kept_until_they_are_committed(
    forest: MemoryForest,
) -> None:
    progress = opened(forest)
    progress.begin({1: 2, 2: 1}, {1: 2, 2: 1})
    progress.skip(2, packed_failure(Failure(Cause.EXCEPTION, reason="odd"), 5))
    again = opened(forest)
    assert (again.failures, list(again.skipped)) == ({1: 2}, [2])
    again.committed(1)
    assert opened(forest).failures == {}
    MemoryTree(forest).set(f"{A}/skipped", b'{"2": 0}')
    with pytest.raises(StateMismatch, match="failures by batch"):
        opened(forest)


def test_with_several_spouts_the_highest_progress_is_used_and_written_to_all(
    forest: MemoryForest,
) -> None:
    tree = MemoryTree(forest)
    tree.create(f"{A}/currtx", b"5")
    tree.create(f"{A}/currattempts", b'{"5": 1, "6": 7}')
    tree.create(f"{B}/currtx", b"6")
    tree.create(f"{B}/currattempts", b'{"6": 2}')
    tree.create(f"{B}/epoch", b"9")
    progress = opened(forest, "a", "b")
    assert (progress.current, progress.attempts, progress.epoch) == (6, {6: 7}, 10)
    assert values(forest, A) == values(forest, B) == [b"6", b'{"6": 7}', b"10"]


def test_a_former_life_cannot_write_any_more(forest: MemoryForest) -> None:
    old = opened(forest)
    old.begin({1: 0})
    new = opened(forest)
    for write in (lambda: old.begin({1: 1}), lambda: old.committed(1)):
        with pytest.raises(StaleAttempt, match="of a later coordinator"):
            write()
    new.begin({1: 1})
    assert values(forest) == [b"1", b'{"1": 1}', b"2"]


def test_the_coordinator_that_opens_later_wins(forest: MemoryForest) -> None:
    class Meanwhile(MemoryTree):
        """While it opens, the former life writes once more."""

        first = True

        def set(self, path: str, value: bytes, version: int | None = None) -> int:
            if self.first and path.endswith("currattempts"):
                self.first = False
                old.begin({1: 5})
            return super().set(path, value, version)

    old = opened(forest)
    new = opened(Meanwhile(forest))
    assert new.attempts == {1: 5}
    with pytest.raises(StaleAttempt):
        old.begin({1: 6})
    new.begin({1: 6})


def test_two_coordinators_that_keep_writing_are_reported(forest: MemoryForest) -> None:
    class Rival(MemoryTree):
        def set(self, path: str, value: bytes, version: int | None = None) -> int:
            MemoryTree.set(self, path, value)
            return super().set(path, value, version)

    opened(forest)
    with pytest.raises(StaleAttempt, match="running twice"):
        opened(Rival(forest))


def test_the_store_of_another_topology_is_refused(forest: MemoryForest) -> None:
    tree = MemoryTree(forest)
    progress = opened(forest)
    with pytest.raises(StateMismatch, match=r"a/coordinator is of topology 'words'.*'others'.*id"):
        StoredProgress(tree, ROOT, ["b", "a"], "others")
    progress.begin({1: 0})
    assert tree.get(f"{B}/currtx") is None, "nothing was written"
    tree.set(f"{A}/topology", b"[7]")
    with pytest.raises(StateMismatch, match="a/coordinator/topology holds"):
        opened(forest)


class Silent(MemoryTree):
    """Does not answer the next write, which is carried out or not."""

    carries_out: bool | None = None

    def set(self, path: str, value: bytes, version: int | None = None) -> int:
        silent, self.carries_out = self.carries_out, None
        if silent is None:
            return super().set(path, value, version)
        if silent:
            super().set(path, value, version)
        raise StoreUnreachable("it does not answer")


@pytest.mark.parametrize("carried_out", [True, False])
def test_a_write_without_an_answer_is_looked_up(forest: MemoryForest, carried_out: bool) -> None:
    tree = Silent(forest)
    progress = opened(tree, "a", "b")
    tree.carries_out = carried_out
    with pytest.raises(StoreUnreachable):
        progress.begin({1: 0})
    progress.begin({1: 0})
    progress.committed(1)
    assert values(forest, A) == values(forest, B) == [b"2", b'{"1": 0}', b"1"]


@pytest.mark.parametrize("carried_out", [True, False])
def test_a_coordinator_without_an_answer_is_stale_after_a_later_life_has_begun(
    forest: MemoryForest, carried_out: bool
) -> None:
    tree = Silent(forest)
    old = opened(tree)
    tree.carries_out = carried_out
    with pytest.raises(StoreUnreachable):
        old.begin({1: 0})
    new = opened(forest)
    assert new.attempts == ({1: 0} if carried_out else {})
    with pytest.raises(StaleAttempt):
        old.begin({1: 0})


class Late(MemoryTree):
    """Does not answer the next write, and carries it out just before the following one."""

    is_late = False
    write: Callable[[], object] | None = None

    def set(self, path: str, value: bytes, version: int | None = None) -> int:
        if self.is_late:
            self.is_late = False
            self.write = partial(super().set, path, value, version)
            raise StoreUnreachable("it does not answer")
        late, self.write = self.write, None
        if late is not None:
            late()
        return super().set(path, value, version)


def test_a_late_write_of_its_own_is_not_taken_for_that_of_another_coordinator(
    forest: MemoryForest,
) -> None:
    tree = Late(forest)
    progress = opened(tree)
    tree.is_late = True
    with pytest.raises(StoreUnreachable):
        progress.begin({1: 0})
    progress.begin({1: 1})
    progress.committed(1)
    assert values(forest) == [b"2", b'{"1": 1}', b"1"]


def test_an_equal_value_of_a_later_life_is_not_taken_for_its_own_write(
    forest: MemoryForest,
) -> None:
    tree = Silent(forest)
    old = opened(tree)
    tree.carries_out = False
    with pytest.raises(StoreUnreachable):
        old.begin({})
    new = opened(forest)
    with pytest.raises(StaleAttempt):
        old.begin({1: 0})
    new.begin({1: 0})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *itertools.product(("currtx", "epoch"), (b"", b"0", b"-1", b"1.5", b"true", b'"7"', b"{")),
        *itertools.product(("currattempts",), (b"[]", b'{"a": 1}', b'{"1": -1}', b'{"1": "x"}')),
    ],
)
def test_the_error_names_a_node_with_a_foreign_value(
    forest: MemoryForest, name: str, value: bytes
) -> None:
    MemoryTree(forest).create(f"{A}/{name}", value)
    with pytest.raises(StateMismatch, match=rf"{A}/{name} holds .*another store"):
        opened(forest)


def test_progress_of_another_version_is_refused_and_unversioned_counts_as_version_1(
    forest: MemoryForest,
) -> None:
    opened(forest).committed(1)
    tree = MemoryTree(forest)
    tree.delete(f"{A}/version")
    assert opened(forest).current == 2
    tree.put(f"{A}/version", b"9")
    before = dict(forest.nodes)
    with pytest.raises(VersionMismatch, match=f"^{A} has version 9, and this .* version 1: use"):
        opened(forest)
    assert forest.nodes == before
