"""The incarnation of folders in a tree: it changes when all of them are removed."""

from __future__ import annotations

from sunshower.state.memory_tree import MemoryForest, MemoryTree
from sunshower.state.tree import incarnation


def test_all_who_ask_are_told_the_same_until_the_folders_are_removed() -> None:
    forest = MemoryForest()
    first = incarnation(MemoryTree(forest), ["/b", "/a"])
    assert incarnation(MemoryTree(forest), ["/a", "/b"]) == first
    assert incarnation(MemoryTree(forest), ["/other"]) != first
    assert incarnation(MemoryTree(MemoryForest()), ["/a", "/b"]) != first


def test_a_folder_that_is_added_or_removed_alone_changes_nothing() -> None:
    tree = MemoryTree(MemoryForest())
    first = incarnation(tree, ["/b"])
    assert incarnation(tree, ["/a", "/b"]) == first
    assert incarnation(tree, ["/a"]) == first


def test_who_asks_at_the_same_time_is_told_the_same() -> None:
    forest, told = MemoryForest(), list[str]()

    class Late(MemoryTree):
        def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False) -> None:
            if not told:
                told.append("")
                told.append(incarnation(MemoryTree(forest), ["/a", "/b"]))
            super().create(path, value, ephemeral=ephemeral)

    assert incarnation(Late(forest), ["/a", "/b"]) == told[1]
