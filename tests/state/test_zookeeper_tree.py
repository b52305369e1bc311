"""What only a real ZooKeeper does to its clients: it restarts, refuses them, or loses answers."""

from __future__ import annotations

import socket
import threading
import uuid

import pytest
from kazoo.exceptions import ConnectionLoss

from sunshower.dev.ports import Ports
from sunshower.dev.zookeeper import ZooKeeper
from sunshower.errors import (
    NodeExists,
    StoreError,
    StoreForbidden,
    StoreUnreachable,
    WrongVersion,
)
from sunshower.state import zookeeper_client
from sunshower.state.tree import Node, SessionState
from sunshower.state.zookeeper_tree import ZooKeeperTree
from tests.state.expiring import expire
from tests.state.test_store_contract import Hears

ME = ("me", "secret")


def test_where_nobody_listens_the_error_comes_in_time() -> None:
    ports = Ports()
    address = f"127.0.0.1:{ports.claim()}"
    with pytest.raises(StoreUnreachable, match=f"no ZooKeeper has answered at {address} for 1 s"):
        ZooKeeperTree(address, answer_within_s=1)
    ports.release()


def test_a_connection_on_which_nothing_is_answered_is_given_up_before_the_session_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zookeeper_client, "ATTEMPT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(StoreUnreachable, match="time-out"):
            ZooKeeperTree(address, session_timeout_s=60, answer_within_s=6)
        silent.settimeout(1)
        for _ in range(3):
            silent.accept()[0].close()


def test_a_server_that_comes_back_finds_calls_watches_and_nodes_of_its_clients(
    zookeeper: ZooKeeper,
) -> None:
    root = f"/{uuid.uuid4().hex}"
    tree = ZooKeeperTree(zookeeper.connect, session_timeout_s=60, answer_within_s=120)
    seen, written = Hears(), Hears()
    tree.create(f"{root}/mine", ephemeral=True)
    tree.watch(f"{root}/new", seen)
    zookeeper.kill()
    writer = threading.Thread(target=lambda: written(tree.create(f"{root}/new", b"kept")))
    writer.start()  # the write is retried until the server is back
    zookeeper.restart()
    written.next()
    writer.join()
    seen.until(lambda: tree.get(f"{root}/new") == Node(b"kept", 0))
    assert tree.children(root) == ["mine", "new"]
    tree.close()


def test_a_server_that_is_away_for_too_long_is_an_error(zookeeper: ZooKeeper) -> None:
    tree = ZooKeeperTree(zookeeper.connect, session_timeout_s=10, answer_within_s=1)
    zookeeper.kill()
    try:
        with pytest.raises(StoreUnreachable, match=f"at {zookeeper.connect} does not answer"):
            tree.get("/any")
    finally:
        zookeeper.restart()
    tree.close()


def test_nodes_with_a_password_are_for_those_who_know_it(zookeeper: ZooKeeper) -> None:
    root = f"/{uuid.uuid4().hex}"
    trees = [
        ZooKeeperTree(zookeeper.connect, digest=who) for who in (ME, ME, ("me", "guess"), None)
    ]
    mine, twin, *strangers = trees
    mine.create(root, b"secret")
    assert twin.set(root, b"changed") == 1
    for stranger in strangers:
        with pytest.raises(StoreForbidden, match="another name and password"):
            stranger.get(root)
        with pytest.raises(StoreForbidden, match="another name and password"):
            stranger.set(root, b"")
    for tree in trees:
        tree.close()


class LosesAnswers:
    """Wraps a method of kazoo: the call reaches the server, and its first answer is lost."""

    def __init__(self, tree: ZooKeeperTree, name: str, patch: pytest.MonkeyPatch) -> None:
        self.call = getattr(tree.client, name)
        self._lost = False
        patch.setattr(tree.client, name, self)

    def __call__(self, *arguments: object, **named: object) -> LosesAnswers:
        self._promise = self.call(*arguments, **named)
        return self

    def get(self, timeout: float) -> object:
        answer = self._promise.get(timeout=timeout)
        if not self._lost:
            self._lost = True
            raise ConnectionLoss
        return answer


def test_a_write_whose_answer_was_lost_is_recognised(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = f"/{uuid.uuid4().hex}"
    tree = ZooKeeperTree(zookeeper.connect)
    with monkeypatch.context() as patch:
        LosesAnswers(tree, "create_async", patch)
        tree.create(root, b"0")
    with monkeypatch.context() as patch:
        LosesAnswers(tree, "create_async", patch)
        tree.create(f"{root}/mine", ephemeral=True)
    with monkeypatch.context() as patch:
        LosesAnswers(tree, "set_async", patch)
        assert tree.set(root, b"1", 0) == 1
    assert tree.get(root) == Node(b"1", 1)
    with monkeypatch.context() as patch:
        LosesAnswers(tree, "delete_async", patch)
        tree.delete(f"{root}/mine")
    assert tree.children(root) == []
    tree.close()


def test_a_write_of_somebody_else_is_not_taken_for_ones_own(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = f"/{uuid.uuid4().hex}"
    tree, other = ZooKeeperTree(zookeeper.connect), ZooKeeperTree(zookeeper.connect)
    other.create(root, b"theirs", ephemeral=True)
    with pytest.raises(NodeExists):
        tree.create(root, b"theirs", ephemeral=True)
    lossy = LosesAnswers(tree, "set_async", monkeypatch)
    mine = lossy.call

    def theirs_first(*arguments: object) -> object:
        lossy.call = mine
        return other.client.set_async(root, b"first", 0)

    lossy.call = theirs_first
    with pytest.raises(WrongVersion):
        tree.set(root, b"mine", 0)
    assert other.get(root) == Node(b"first", 1, ephemeral=True)
    tree.close()
    other.close()


def test_a_session_that_ends_within_a_withdrawal_removes_nothing_of_others(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = f"/{uuid.uuid4().hex}"
    slow, other = ZooKeeperTree(zookeeper.connect), ZooKeeperTree(zookeeper.connect)
    slow.create(f"{root}/claim", ephemeral=True)
    slow.create(f"{root}/slow", ephemeral=True)
    first = slow.client.client_id
    begin, told = slow.client.transaction, Hears()
    slow.listen(told)

    def late() -> object:
        if slow.client.client_id == first:  # the node was checked; now the session expires
            expire(zookeeper, slow)
            while told.next() is not SessionState.CONNECTED or slow.client.client_id == first:
                pass
            other.create(f"{root}/claim", ephemeral=True)
        return begin()

    monkeypatch.setattr(slow.client, "transaction", late)
    slow.withdraw(f"{root}/claim", f"{root}/slow")
    assert slow.client.client_id != first
    assert other.children(root) == ["claim"]
    slow.close()
    other.close()


def test_a_value_that_the_server_would_hang_up_on_is_no_outage(zookeeper: ZooKeeper) -> None:
    tree, path = ZooKeeperTree(zookeeper.connect), f"/{uuid.uuid4().hex}"
    tree.create(path, b"x" * 1_000_000)
    for write in (tree.create, tree.set, tree.put):
        with pytest.raises(StoreError, match="1,000,001 bytes") as raised:
            write(path, b"x" * 1_000_001)
        assert not isinstance(raised.value, StoreUnreachable)
    tree.close()
