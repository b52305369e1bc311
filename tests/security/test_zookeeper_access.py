"""Each class that uses ZooKeeper takes a password, TLS and an ACL by the same arguments."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NotEmptyError

from sunshower import Topology, run_inline
from sunshower.dev.security import Certificates, issue
from sunshower.dev.zookeeper import ZooKeeper
from sunshower.errors import ConfigError, StoreForbidden, TopologyFailed
from sunshower.kafka.zookeeper.options import (
    ByZooKeeperGroup,
    PlainOffsets,
    StormOffsets,
    ZooKeeperBrokers,
)
from sunshower.secret import Secret
from sunshower.state import ZooKeeperState
from sunshower.state.zookeeper_client import Tls, ZooKeeperAccess
from sunshower.state.zookeeper_tree import ZooKeeperTree
from sunshower.trident import FixedBatchSpout, InZooKeeper, batches, count

USERS = (
    *(InZooKeeper, ZooKeeperState),
    *(ZooKeeperBrokers, ByZooKeeperGroup, StormOffsets, PlainOffsets),
)


@pytest.mark.parametrize("user", USERS)
def test_every_option_for_zookeeper_has_the_same_access(user: type) -> None:
    assert issubclass(user, ZooKeeperAccess)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return issue(tmp_path_factory.mktemp("certificates"), "zookeeper", "me")


@pytest.fixture(scope="module")
def server(releases: None, certificates: Certificates) -> Iterator[ZooKeeper]:
    with ZooKeeper(tls=certificates) as zookeeper:
        yield zookeeper


def run(access: ZooKeeperAccess, total: int) -> dict[str, int]:
    """Run a batch program that stores its progress and counts in ZooKeeper. Return the counts."""
    credentials = {"digest": access.digest, "tls": access.tls}
    topology = Topology("guarded")
    spout = FixedBatchSpout([("k",)] * total, 2, fields=("key",))
    rows = batches(topology, "rows", spout, store=InZooKeeper(access.hosts, **credentials))
    state = ZooKeeperState(access.hosts, **credentials)
    rows.group_by("key").aggregate(count(), state=state)
    run_inline(topology.graph())
    return dict(state.items())


@contextmanager
def connected(server: ZooKeeper) -> Iterator[KazooClient]:
    client = KazooClient(server.connect, timeout=20)
    client.start(timeout=60)
    yield client
    client.stop()
    client.close()


def nodes(client: KazooClient, path: str = "/") -> Iterator[str]:
    for child in client.get_children(path):
        node = f"{path.rstrip('/')}/{child}"
        if node != "/zookeeper":
            yield node
            yield from nodes(client, node)


@pytest.mark.servers
def test_progress_and_states_need_the_password(
    server: ZooKeeper, certificates: Certificates
) -> None:
    tls = Tls(certificates.authority, certificates.holder("me"))
    mine = ZooKeeperAccess(server.connect_tls, digest=("me", Secret("word-1")), tls=tls)
    assert run(mine, 4) == {"k": 4}
    with connected(server) as owner, connected(server) as stranger:
        owner.add_auth("digest", "me:word-1")
        paths = [*nodes(owner)]
        assert [path for path in paths if path.endswith("rows/coordinator/currtx")]
        assert [path for path in paths if path.endswith("%22k%22")]
        for path in paths:
            assert [acl.id.scheme for acl in owner.get_acls(path)[0]] == ["digest"], path
            with pytest.raises(NoAuthError):
                stranger.get(path)
            with pytest.raises(NoAuthError):
                stranger.set(path, b"1000")
            with pytest.raises((NoAuthError, NotEmptyError)):  # any client may change the root
                stranger.delete(path)
    with pytest.raises((StoreForbidden, TopologyFailed), match="another name and password"):
        run(ZooKeeperAccess(server.connect, digest=("me", "guess")), 4)


@pytest.mark.servers
def test_an_acl_sets_the_permissions_of_new_nodes(server: ZooKeeper) -> None:
    acl = ("auth::cdrwa", "world:anyone:r")
    with closing(ZooKeeperTree(server.connect, digest=("me", "word-2"), acl=acl)) as tree:
        tree.create("/shown/node", b"1")
    with connected(server) as stranger:
        for path in ("/shown", "/shown/node"):
            stranger.get(path)
            with pytest.raises(NoAuthError):
                stranger.set(path, b"2")


@pytest.mark.parametrize(
    "acl", ["auth::r", [5], ("auth",), ("auth:r",), ("auth::x",), ("auth::",), (":me:r",)]
)
def test_an_invalid_acl_is_refused_when_it_is_declared(acl: object) -> None:
    with pytest.raises(ConfigError, match=r"InZooKeeper: .*scheme:id:permissions"):
        InZooKeeper("zk:2181", acl=acl)  # type: ignore[arg-type]


@pytest.mark.servers
def test_a_warning_names_existing_nodes_that_any_client_may_change(
    server: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(ZooKeeperTree(server.connect)) as before:
        before.create("/open/node")
    with (
        caplog.at_level(logging.WARNING, logger="sunshower"),
        closing(ZooKeeperTree(server.connect, digest=("me", "word"))) as tree,
    ):
        tree.create("/mine/node")
        assert not caplog.records
        for name in "ab":
            tree.create(f"/open/{name}")
    assert [record.message.split(",")[0] for record in caplog.records] == [
        f"any client of the ZooKeeper at {server.connect} may change /open"
    ]
