"""The incarnation of folders in a tree: it changes when all of them are removed."""

from __future__ import annotations

from sunshower.state.tree import MemoryForest, MemoryTree, incarnation


def test_all_clients_get_the_same_incarnation_of_the_same_folders() -> None:
    forest = MemoryForest()
    first = incarnation(MemoryTree(forest), ["/b", "/a"])
    assert incarnation(MemoryTree(forest), ["/a", "/b"]) == first
    assert incarnation(MemoryTree(forest), ["/other"]) != first
    assert incarnation(MemoryTree(MemoryForest()), ["/a", "/b"]) != first


def test_a_single_added_or_removed_folder_does_not_change_the_incarnation() -> None:
    tree = MemoryTree(MemoryForest())
    first = incarnation(tree, ["/b"])
    assert incarnation(tree, ["/a", "/b"]) == first
    assert incarnation(tree, ["/a"]) == first


def test_clients_that_ask_at_the_same_time_get_the_same_incarnation() -> None:
    forest, incarnations = MemoryForest(), list[str]()

    class Interrupted(MemoryTree):
        def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False) -> None:
            if not incarnations:
                incarnations.append("")
                incarnations.append(incarnation(MemoryTree(forest), ["/a", "/b"]))
            super().create(path, value, ephemeral=ephemeral)

    assert incarnation(Interrupted(forest), ["/a", "/b"]) == incarnations[1]
