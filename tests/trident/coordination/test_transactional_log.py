"""TransactionalLog: Storm's RotatingTransactionalState over any tree."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from sunshower.errors import (
    BatchError,
    NodeExists,
    StateMismatch,
    StoreUnreachable,
    WrongVersion,
)
from sunshower.state.tree import MemoryForest, MemoryTree, Tree
from sunshower.trident.coordination.transactional_log import TransactionalLog

PATH = "/transactional/words/coordinator/meta"


@pytest.fixture
def tree() -> Tree:
    return MemoryTree(MemoryForest())


def opened(tree: Tree, **values: Any) -> TransactionalLog:
    state = TransactionalLog(tree, PATH)
    for txid, value in values.items():
        state.override(int(txid[1:]), value)
    return state


def test_stored_values_are_there_after_a_restart(tree: Tree) -> None:
    opened(tree, _7={"from": 1}, _8=(1, "a"))
    again = TransactionalLog(tree, PATH)
    assert again.keys() == [7, 8]
    assert again.get(7) == {"from": 1}
    node = tree.get(f"{PATH}/8")
    assert node is not None
    assert node.value == b'[1, "a"]'


def test_a_value_is_the_same_before_and_after_a_restart(tree: Tree) -> None:
    state = opened(tree, _1=(1, 2))
    assert state.get(1) == [1, 2] == TransactionalLog(tree, PATH).get(1)


def test_previous_is_of_the_greatest_txid_below(tree: Tree) -> None:
    state = opened(tree, _3="three", _5="five", _10="ten")
    assert [state.previous(txid) for txid in (3, 4, 5, 6, 11)] == [
        *(None, "three", "three", "five", "ten"),
    ]
    assert state.last() == "ten"
    assert TransactionalLog(tree, "/nothing").last() is None


def test_cleanup_leaves_the_txid_itself_for_the_next_one(tree: Tree) -> None:
    state = opened(tree, _1=1, _2=2, _3=3)
    state.cleanup_before(3)
    assert state.keys() == [3]
    assert tree.children(PATH) == ["3"]
    state.remove(3)
    state.remove(3)
    assert tree.children(PATH) == []


def test_nodes_that_another_process_has_removed_are_no_error(tree: Tree) -> None:
    state = opened(tree, _1=1, _2=2)
    tree.delete(f"{PATH}/1")
    state.cleanup_before(2)
    tree.delete(f"{PATH}/2")
    state.override(2, "again")
    assert TransactionalLog(tree, PATH).get(2) == "again"


class Silent(MemoryTree):
    """Writes, and then does not answer."""

    is_silent = False

    def set(self, path: str, value: bytes, version: int | None = None) -> int:
        written = super().set(path, value, version)
        if self.is_silent:
            raise StoreUnreachable("it does not answer")
        return written


def test_a_write_without_an_answer_is_looked_up() -> None:
    tree = Silent(MemoryForest())
    state = opened(tree, _1="old")
    tree.is_silent = True
    with pytest.raises(StoreUnreachable):
        state.override(1, "new")
    tree.is_silent = False
    assert state.get(1) == "new"


class Late(MemoryTree):
    """Does not answer the next write, and carries it out when `deliver` is called."""

    is_late = False

    def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False) -> None:
        self._perhaps_late(partial(super().create, path, value))

    def set(self, path: str, value: bytes, version: int | None = None) -> int:
        self._perhaps_late(partial(super().set, path, value, version))
        node = self.get(path)
        assert node is not None
        return node.version

    def _perhaps_late(self, write: Callable[[], object]) -> None:
        if self.is_late:
            self.is_late, self.write = False, write
            raise StoreUnreachable("it does not answer")
        write()

    def deliver(self) -> None:
        with suppress(NodeExists, WrongVersion):
            self.write()


@pytest.mark.parametrize("before", [{}, {"_7": "old"}])
def test_a_write_that_comes_late_changes_nothing(before: dict[str, Any]) -> None:
    tree = Late(MemoryForest())
    state = opened(tree, **before)
    tree.is_late = True
    with pytest.raises(StoreUnreachable):
        state.override(7, "of attempt 0")
    state.override(7, "of attempt 1")
    tree.deliver()
    assert state.get(7) == TransactionalLog(tree, PATH).get(7) == "of attempt 1"


@pytest.mark.parametrize("before", [{}, {"_7": "old"}])
def test_a_late_write_that_arrives_before_the_next_one_is_read_again(
    before: dict[str, Any],
) -> None:
    tree = Late(MemoryForest())
    state = opened(tree, **before)
    tree.is_late = True
    with pytest.raises(StoreUnreachable):
        state.override(7, "of attempt 0")
    assert state.get(7) == before.get("_7")
    tree.deliver()
    with pytest.raises(StoreUnreachable, match="come late"):
        state.override(7, "of attempt 1")
    assert state.get(7) == "of attempt 0"


def test_an_equal_value_is_not_written_again(tree: Tree) -> None:
    state = opened(tree, _7={"a": (1, 2)})
    state.override(7, {"a": [1, 2]})
    node = tree.get(f"{PATH}/7")
    assert node is not None
    assert node.version == 0
    state.override(7, {"a": [1, 2.0]})
    node = tree.get(f"{PATH}/7")
    assert node is not None
    assert node.version == 1


def test_foreign_nodes_are_named(tree: Tree) -> None:
    tree.create(f"{PATH}/seven", b"1")
    with pytest.raises(StateMismatch, match=f"{PATH}/seven.*another id"):
        TransactionalLog(tree, PATH)


def test_the_error_for_a_corrupt_node_names_it_and_its_content(tree: Tree) -> None:
    tree.create(f"{PATH}/7", b"\xff{")
    with pytest.raises(StateMismatch, match=rf"{PATH}/7 holds .*xff.*not JSON"):
        TransactionalLog(tree, PATH)


@pytest.mark.parametrize("value", [object(), float("nan"), {1, 2}])
def test_a_value_that_json_cannot_represent_is_refused_and_changes_nothing(
    tree: Tree, value: object
) -> None:
    state = opened(tree, _1="old")
    with pytest.raises(BatchError, match=f"cannot be kept at {PATH}/1"):
        state.override(1, value)
    assert state.get(1) == "old"
