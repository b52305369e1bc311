"""ZooKeeper clients with TLS certificates, with name and password, and their errors."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from sunshower.clock import SystemClock
from sunshower.dev.security import Certificates, issue
from sunshower.dev.zookeeper import ZooKeeper
from sunshower.errors import ConfigError, StoreForbidden, StoreUnreachable
from sunshower.state.tree import Node
from sunshower.state.zookeeper_client import Tls
from sunshower.state.zookeeper_tree import ZooKeeperTree
from tests.state.test_store_contract import CallQueue

pytestmark = pytest.mark.servers
SESSION_S, BAD_INPUT_S = 60.0, 40.0  # an error is raised earlier than a session would end


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return issue(tmp_path_factory.mktemp("certificates"), "zookeeper", "me")


@pytest.fixture(scope="module")
def secured(releases: None, certificates: Certificates) -> Iterator[ZooKeeper]:
    """A server with a port for TLS, where clients need a certificate."""
    with ZooKeeper(tls=certificates) as server:
        yield server


@pytest.fixture
def tls(certificates: Certificates) -> Tls:
    return Tls(certificates.authority, certificates.holder("me"))


def test_nodes_and_watches_work_over_tls(secured: ZooKeeper, tls: Tls) -> None:
    path = f"/{uuid.uuid4().hex}"
    tree, plain = ZooKeeperTree(secured.connect_tls, tls=tls), ZooKeeperTree(secured.connect)
    seen = CallQueue()
    tree.watch(path, seen)
    plain.create(path, b"value")
    seen.until(lambda: tree.get(path) == Node(b"value", 0))
    tree.close()
    plain.close()


def test_tls_and_a_password_go_together(secured: ZooKeeper, tls: Tls) -> None:
    path = f"/{uuid.uuid4().hex}"
    mine = ZooKeeperTree(secured.connect_tls, tls=tls, digest=("me", "secret"))
    other = ZooKeeperTree(secured.connect_tls, tls=tls)
    mine.create(path, b"secret")
    with pytest.raises(StoreForbidden, match=f"{path}: it needs another name and password"):
        other.get(path)
    assert mine.get(path) == Node(b"secret", 0)
    mine.close()
    other.close()


@pytest.mark.parametrize(
    "wrong", ["no certificate", "of another authority", "its authority is not trusted"]
)
def test_a_client_that_fails_the_tls_handshake_is_an_error_in_time(
    secured: ZooKeeper, certificates: Certificates, tmp_path: Path, wrong: str
) -> None:
    other = issue(tmp_path, "other")
    tls = {
        "no certificate": Tls(certificates.authority),
        "of another authority": Tls(certificates.authority, other.holder("other")),
        "its authority is not trusted": Tls(other.authority, certificates.holder("me")),
    }[wrong]
    began_s = SystemClock().now()
    with pytest.raises(StoreUnreachable, match=rf"{secured.connect_tls} for 2 s \(.*\)"):
        ZooKeeperTree(secured.connect_tls, tls=tls, session_timeout_s=SESSION_S, answer_within_s=2)
    assert SystemClock().now() - began_s < BAD_INPUT_S


def test_the_error_of_a_connection_without_tls_says_so_in_time(
    secured: ZooKeeper, tls: Tls
) -> None:
    with pytest.raises(StoreUnreachable, match="does it use no TLS"):
        ZooKeeperTree(secured.connect_tls, answer_within_s=1)
    with pytest.raises(StoreUnreachable, match="is that its address"):
        ZooKeeperTree(secured.connect, tls=tls, answer_within_s=1)


def test_a_file_that_is_no_certificate_is_refused_at_once(tls: Tls, tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch()
    for wrong in (
        Tls(tmp_path / "missing.pem"),
        Tls(empty),
        Tls(tls.authority, empty),
        Tls(tls.authority, tls.authority),
    ):
        with pytest.raises(ConfigError, match=r"\.pem is no certificate for TLS"):
            ZooKeeperTree("127.0.0.1:1", tls=wrong)


@pytest.mark.parametrize("hosts", ["host:port", "host:1:2", "a:1,,b:1"])
def test_an_invalid_address_is_refused_at_once(hosts: str) -> None:
    with pytest.raises(ConfigError, match="is no address of a ZooKeeper"):
        ZooKeeperTree(hosts)


def test_calls_to_a_hanging_server_and_closing_it_end_in_time(secured: ZooKeeper) -> None:
    clock = SystemClock()
    tree = ZooKeeperTree(secured.connect, session_timeout_s=SESSION_S, answer_within_s=2)
    secured.pause()
    try:
        began_s = clock.now()
        with pytest.raises(StoreUnreachable, match="does not answer"):
            tree.get("/any")
        with pytest.raises(StoreUnreachable, match="no ZooKeeper has answered"):
            ZooKeeperTree(secured.connect, session_timeout_s=SESSION_S, answer_within_s=2)
        tree.close()
        assert clock.now() - began_s < BAD_INPUT_S
    finally:
        secured.resume()
