"""Rules that all trees fulfil: in memory, in SQLite, and in a real ZooKeeper."""

from __future__ import annotations

import queue
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sunshower.errors import NodeExists, NoNode, StoreError, WrongVersion
from sunshower.state import sqlite_tree
from sunshower.state.sqlite_tree import SqliteTree
from sunshower.state.tree import MemoryForest, MemoryTree, Node, SessionState, Tree
from sunshower.state.zookeeper_tree import ZooKeeperTree
from tests.state.session_expiry import expire

WITHIN_S = 120
OPTIONS: Any = {"session_timeout_s": 20, "answer_within_s": WITHIN_S}


@dataclass
class Store:
    """A store under test, its clients, and a function that ends the session of a client."""

    new: Callable[[], Tree]
    expire: Callable[[Tree], None]
    opened: list[Tree] = field(default_factory=list)
    root: str = field(default_factory=lambda: f"/{uuid.uuid4().hex}")

    def open(self) -> Tree:
        self.opened.append(self.new())
        return self.opened[-1]


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    requested: Store = request.getfixturevalue(request.param)
    yield requested
    for tree in requested.opened:
        tree.close()


@pytest.fixture
def in_memory() -> Store:
    forest = MemoryForest()

    def expire(tree: Tree) -> None:
        assert isinstance(tree, MemoryTree)
        tree.expire()

    return Store(lambda: MemoryTree(forest), expire)


@pytest.fixture
def in_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Its clients notice the end of their session at the next heartbeat, so there are many."""
    file = tmp_path / "tree.sqlite"
    monkeypatch.setattr(sqlite_tree, "_BEATS", 80)

    def expire(tree: Tree) -> None:
        """Remove the session, as another client does after too many missed heartbeats."""
        assert isinstance(tree, SqliteTree)
        with sqlite3.connect(file, timeout=30) as db:
            db.execute("DELETE FROM nodes WHERE owner = ?", (tree.session,))
            db.execute("DELETE FROM sessions WHERE id = ?", (tree.session,))
        db.close()

    return Store(lambda: SqliteTree(file, **OPTIONS), expire)


@pytest.fixture
def in_zookeeper(request: pytest.FixtureRequest) -> Store:
    server = request.getfixturevalue("zookeeper")

    def end(tree: Tree) -> None:
        assert isinstance(tree, ZooKeeperTree)
        expire(server, tree)

    return Store(lambda: ZooKeeperTree(server.connect, **OPTIONS), end)


every_store = pytest.mark.parametrize(
    "store",
    [
        "in_memory",
        "in_sqlite",
        pytest.param("in_zookeeper", marks=pytest.mark.servers),
    ],
    indirect=True,
)


class CallQueue:
    """A callback for watches and sessions that queues its calls, so that a test can wait."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[object] = queue.SimpleQueue()

    def __call__(self, what: object = None) -> None:
        self._calls.put(what)

    def next(self) -> object:
        return self._calls.get(timeout=WITHIN_S)

    def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.next()


# ---- values -------------------------------------------------------------------------------------


@every_store
def test_a_created_node_is_visible_to_all_clients(store: Store) -> None:
    first, second = store.open(), store.open()
    path = f"{store.root}/a/b"
    assert first.get(path) is None
    first.create(path, b"value")
    assert second.get(path) == Node(b"value", 0)
    assert second.get(f"{store.root}/a") == Node(b"", 0)
    with pytest.raises(NodeExists, match=f"{path} is there already"):
        second.create(path, b"other")
    assert first.get(path) == Node(b"value", 0)


@every_store
def test_children_are_sorted_names(store: Store) -> None:
    tree = store.open()
    assert tree.children(store.root) == []
    for name in ("c", "a/x", "b"):
        tree.create(f"{store.root}/{name}")
    assert tree.children(store.root) == ["a", "b", "c"]
    assert tree.children(f"{store.root}/a") == ["x"]
    assert store.root[1:] in tree.children("/")


@every_store
def test_every_write_increments_the_version(store: Store) -> None:
    tree = store.open()
    tree.create(store.root)
    assert [tree.set(store.root, b"%d" % number) for number in range(3)] == [1, 2, 3]
    assert tree.get(store.root) == Node(b"2", 3)


@every_store
def test_a_write_or_delete_with_a_stale_version_is_refused(store: Store) -> None:
    first, second = store.open(), store.open()
    first.create(store.root)
    assert first.set(store.root, b"first", 0) == 1
    with pytest.raises(WrongVersion, match=store.root):
        second.set(store.root, b"second", 0)
    with pytest.raises(WrongVersion, match=store.root):
        second.delete(store.root, 0)
    assert second.get(store.root) == Node(b"first", 1)
    second.delete(store.root, 1)
    assert first.get(store.root) is None


@every_store
def test_no_write_of_concurrent_compare_and_set_is_lost(store: Store) -> None:
    trees = [store.open() for _ in range(3)]
    trees[0].create(store.root, b"0")

    def count(tree: Tree) -> None:
        added = 0
        while added < 10:
            node = tree.get(store.root)
            assert node
            try:
                tree.set(store.root, b"%d" % (int(node.value) + 1), node.version)
            except WrongVersion:
                continue
            added += 1

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(count, trees))
    assert trees[0].get(store.root) == Node(b"30", 30)


@every_store
def test_a_missing_node_cannot_be_set_or_deleted(store: Store) -> None:
    tree = store.open()
    with pytest.raises(NoNode, match=f"{store.root} is not there"):
        tree.set(store.root, b"")
    with pytest.raises(NoNode, match=f"{store.root} is not there"):
        tree.delete(store.root)


@every_store
def test_a_node_with_children_cannot_be_deleted(store: Store) -> None:
    tree = store.open()
    tree.create(f"{store.root}/child")
    with pytest.raises(StoreError, match=f"{store.root} has children"):
        tree.delete(store.root)
    tree.delete(f"{store.root}/child")
    tree.delete(store.root)


@every_store
def test_a_node_that_is_created_again_begins_at_version_zero(store: Store) -> None:
    tree = store.open()
    for _ in range(2):
        tree.create(store.root, b"new")
        assert tree.get(store.root) == Node(b"new", 0)
        tree.set(store.root, b"old")
        tree.delete(store.root)


@every_store
@pytest.mark.parametrize("path", ["", "a", "/", "/a/", "//a", "/a\0"])
def test_an_invalid_path_is_refused(store: Store, path: str) -> None:
    tree = store.open()
    for call in (tree.get, tree.create, tree.delete):
        with pytest.raises(StoreError, match="is no path of a node"):
            call(path)


# ---- sessions -----------------------------------------------------------------------------------


@every_store
def test_ephemeral_nodes_are_removed_when_their_client_closes(store: Store) -> None:
    first, second = store.open(), store.open()
    first.create(f"{store.root}/mine", b"me", ephemeral=True)
    first.create(f"{store.root}/ours", b"all")
    assert second.get(f"{store.root}/mine") == Node(b"me", 0, ephemeral=True)
    first.close()
    assert second.children(store.root) == ["ours"]


@every_store
def test_only_its_own_session_withdraws_an_ephemeral_node(store: Store) -> None:
    mine, other = store.open(), store.open()
    mine.create(f"{store.root}/mine", ephemeral=True)
    mine.create(f"{store.root}/lasting")
    other.withdraw(f"{store.root}/mine")
    mine.withdraw(f"{store.root}/lasting")
    mine.withdraw(f"{store.root}/none")
    assert other.children(store.root) == ["lasting", "mine"]
    mine.withdraw(f"{store.root}/mine")
    assert other.children(store.root) == ["lasting"]


@every_store
def test_a_client_that_lost_its_session_withdraws_no_node_of_others(store: Store) -> None:
    lost, other = store.open(), store.open()
    session_states = CallQueue()
    lost.listen(session_states)
    lost.create(f"{store.root}/claim", ephemeral=True)
    store.expire(lost)
    for state in (SessionState.LOST, SessionState.CONNECTED):
        while session_states.next() is not state:
            pass
    other.create(f"{store.root}/claim", ephemeral=True)
    lost.withdraw(f"{store.root}/claim")
    assert other.children(store.root) == ["claim"]


@every_store
def test_put_creates_or_sets_a_node_if_the_node_beside_exists(
    store: Store,
) -> None:
    tree, path, beside = store.open(), f"{store.root}/a/b", f"{store.root}/beside"
    tree.put(path, b"1")
    tree.put(path, b"2")
    assert tree.get(path) == Node(b"2", 1)
    for name in (path, f"{store.root}/new"):
        with pytest.raises(NoNode, match=f"{beside} is not there"):
            tree.put(name, b"3", beside)
    assert tree.children(store.root) == ["a"]
    tree.create(beside, ephemeral=True)
    tree.put(path, b"4", beside)
    tree.put(f"{store.root}/c/d", b"5", beside)
    assert (tree.get(path), tree.get(f"{store.root}/c/d")) == (Node(b"4", 2), Node(b"5", 0))


@every_store
def test_nothing_is_withdrawn_if_the_node_beside_is_gone(store: Store) -> None:
    tree = store.open()
    for name in ("mine", "beside"):
        tree.create(f"{store.root}/{name}", ephemeral=True)
    tree.withdraw(f"{store.root}/mine", f"{store.root}/other")
    assert tree.children(store.root) == ["beside", "mine"]
    tree.withdraw(f"{store.root}/none", f"{store.root}/beside")
    tree.withdraw(f"{store.root}/mine", f"{store.root}/beside")
    assert tree.children(store.root) == ["beside"]


@every_store
def test_an_ephemeral_node_has_no_children(store: Store) -> None:
    tree = store.open()
    tree.create(store.root, ephemeral=True)
    with pytest.raises(StoreError, match="below an ephemeral node"):
        tree.create(f"{store.root}/child")


@every_store
def test_an_expired_session_loses_its_nodes_and_is_replaced(store: Store) -> None:
    first, second = store.open(), store.open()
    session_states, seen = CallQueue(), CallQueue()
    first.listen(session_states)
    path = f"{store.root}/mine"
    first.create(path, b"first", ephemeral=True)
    second.watch(path, seen)
    store.expire(first)
    states = []
    while SessionState.LOST not in states or states[-1] is not SessionState.CONNECTED:
        states.append(session_states.next())
    seen.until(lambda: second.get(path) is None)
    first.create(path, b"again", ephemeral=True)
    assert second.get(path) == Node(b"again", 0, ephemeral=True)
    first.close()
    assert second.get(path) is None


@every_store
def test_a_watch_outlives_the_session(store: Store) -> None:
    first, second = store.open(), store.open()
    session_states, seen = CallQueue(), CallQueue()
    first.create(store.root, b"before")
    first.watch(store.root, seen)
    first.listen(session_states)
    store.expire(first)
    while session_states.next() is not SessionState.LOST:
        pass
    second.set(store.root, b"after")
    seen.until(lambda: first.get(store.root) == Node(b"after", 1))


# ---- watches ------------------------------------------------------------------------------------


@every_store
def test_a_watch_is_called_for_each_kind_of_change(store: Store) -> None:
    first, second = store.open(), store.open()
    seen = CallQueue()
    first.watch(store.root, seen)  # the node does not exist yet
    second.create(store.root, b"0")
    seen.until(lambda: first.get(store.root) == Node(b"0", 0))
    second.set(store.root, b"1")
    seen.until(lambda: first.get(store.root) == Node(b"1", 1))
    second.create(f"{store.root}/child")
    seen.until(lambda: first.children(store.root) == ["child"])
    second.delete(f"{store.root}/child")
    seen.until(lambda: first.children(store.root) == [])
    second.delete(store.root)
    seen.until(lambda: first.get(store.root) is None)
    second.create(store.root, b"2")
    seen.until(lambda: first.get(store.root) == Node(b"2", 0))


@every_store
def test_a_watch_is_called_for_changes_by_its_own_client(store: Store) -> None:
    tree = store.open()
    seen = CallQueue()
    tree.watch(store.root, seen)
    tree.create(store.root)
    seen.next()


@every_store
def test_a_closed_tree_calls_no_watch(store: Store) -> None:
    first, other = store.open(), store.open()
    closed, seen = CallQueue(), CallQueue()
    first.watch(store.root, closed)
    other.watch(store.root, seen)
    first.close()
    other.create(store.root)
    seen.next()
    assert closed._calls.empty()
