"""What only a real ZooKeeper does to its clients: it restarts, refuses them, or loses answers."""

from __future__ import annotations

import socket
import threading
import uuid
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss

from sunshower.dev.servers import Ports
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
from tests.state.session_expiry import expire
from tests.state.test_store_contract import CallQueue

ME = ("me", "secret")


def test_an_address_without_a_server_is_an_error_in_time() -> None:
    ports = Ports()
    address = f"127.0.0.1:{ports.claim()}"
    with pytest.raises(StoreUnreachable, match=f"no ZooKeeper has answered at {address} for 1 s"):
        ZooKeeperTree(address, answer_within_s=1)
    ports.release()


def test_a_connection_without_answers_is_replaced_before_the_session_expires(
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


def test_calls_watches_and_nodes_survive_a_restart_of_the_server(
    zookeeper: ZooKeeper,
) -> None:
    root = f"/{uuid.uuid4().hex}"
    tree = ZooKeeperTree(zookeeper.connect, session_timeout_s=60, answer_within_s=200)
    seen, written = CallQueue(), CallQueue()
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


def test_a_server_that_is_down_for_too_long_is_an_error(zookeeper: ZooKeeper) -> None:
    tree = ZooKeeperTree(zookeeper.connect, session_timeout_s=10, answer_within_s=1)
    zookeeper.kill()
    try:
        with pytest.raises(StoreUnreachable, match=f"at {zookeeper.connect} does not answer"):
            tree.get("/any")
    finally:
        zookeeper.restart()
    tree.close()


def test_nodes_with_a_password_are_refused_to_clients_without_it(zookeeper: ZooKeeper) -> None:
    root = f"/{uuid.uuid4().hex}"
    trees = [
        ZooKeeperTree(zookeeper.connect, digest=digest)
        for digest in (ME, ME, ("me", "guess"), None)
    ]
    mine, twin, *others = trees
    mine.create(root, b"secret")
    assert twin.set(root, b"changed") == 1
    for other_user in others:
        with pytest.raises(StoreForbidden, match="another name and password"):
            other_user.get(root)
        with pytest.raises(StoreForbidden, match="another name and password"):
            other_user.set(root, b"")
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


def test_a_write_whose_answer_was_lost_succeeds_when_it_is_repeated(
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


def test_a_write_of_another_client_is_not_mistaken_for_an_own_one(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = f"/{uuid.uuid4().hex}"
    tree, other = ZooKeeperTree(zookeeper.connect), ZooKeeperTree(zookeeper.connect)
    other.create(root, b"theirs", ephemeral=True)
    with pytest.raises(NodeExists):
        tree.create(root, b"theirs", ephemeral=True)
    lossy = LosesAnswers(tree, "set_async", monkeypatch)
    mine = lossy.call

    def set_by_other_first(*arguments: object) -> object:
        lossy.call = mine
        return other.client.set_async(root, b"first", 0)

    lossy.call = set_by_other_first
    with pytest.raises(WrongVersion):
        tree.set(root, b"mine", 0)
    assert other.get(root) == Node(b"first", 1, ephemeral=True)
    tree.close()
    other.close()


def test_a_session_that_expires_during_a_withdrawal_removes_no_node_of_others(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = f"/{uuid.uuid4().hex}"
    options: Any = {"session_timeout_s": 20, "answer_within_s": 120}
    slow, other = (ZooKeeperTree(zookeeper.connect, **options) for _ in range(2))
    slow.create(f"{root}/claim", ephemeral=True)
    slow.create(f"{root}/slow", ephemeral=True)
    first = slow.client.client_id
    begin, session_states = slow.client.transaction, CallQueue()
    slow.listen(session_states)

    def late() -> object:
        if slow.client.client_id == first:  # the node was checked; now the session expires
            expire(zookeeper, slow)
            while (
                session_states.next() is not SessionState.CONNECTED
                or slow.client.client_id == first
            ):
                pass
            other.create(f"{root}/claim", ephemeral=True)
        return begin()

    monkeypatch.setattr(slow.client, "transaction", late)
    slow.withdraw(f"{root}/claim", f"{root}/slow")
    assert slow.client.client_id != first
    assert other.children(root) == ["claim"]
    slow.close()
    other.close()


def test_a_value_above_the_limit_of_the_server_is_an_error_and_no_outage(
    zookeeper: ZooKeeper,
) -> None:
    tree, path = ZooKeeperTree(zookeeper.connect), f"/{uuid.uuid4().hex}"
    tree.create(path, b"x" * 1_000_000)
    for write in (tree.create, tree.set, tree.put):
        with pytest.raises(StoreError, match="1,000,001 bytes") as raised:
            write(path, b"x" * 1_000_001)
        assert not isinstance(raised.value, StoreUnreachable)
    tree.close()
