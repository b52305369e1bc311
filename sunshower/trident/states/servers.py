"""States in servers that many machines can reach: ZooKeeper, Redis, PostgreSQL."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace

from sunshower.arguments import check_all
from sunshower.secret import ADDRESS, Secret, address
from sunshower.state.backing import Backing, Home
from sunshower.state.zookeeper_client import ZooKeeperAccess
from sunshower.topologies.operators.states import Place, StateKind
from sunshower.trident.states.factories import KeptState
from sunshower.trident.states.stored_map import StoredMap

_URL = replace(ADDRESS, instead='an address, such as "redis://host:6379"')


@dataclass(frozen=True)
class ZooKeeperState(ZooKeeperAccess, KeptState):
    """In ZooKeeper, one node per key: for small states. A batch must be below a megabyte. The node
    of key "storm" is `<root>/<state>/<task>/values/%22storm%22` and holds JSON as in Storm. See
    ZooKeeperAccess for `digest` and `tls`."""

    kind: StateKind = StateKind.OPAQUE
    name: str | None = None
    root: str = "/sunshower/states"

    @property
    def where(self) -> str:
        return f"ZooKeeper at {self.hosts}{self.root}"

    def open(self, home: Home) -> Backing:
        from sunshower.state.zookeeper_backing import ZooKeeperBacking
        from sunshower.state.zookeeper_tree import ZooKeeperTree

        return ZooKeeperBacking(ZooKeeperTree.of(self), self.root, home)

    def homes(self) -> list[Home]:
        from sunshower.state.zookeeper_backing import homes
        from sunshower.state.zookeeper_tree import ZooKeeperTree

        with closing(ZooKeeperTree.of(self)) as tree:
            return homes(tree, self.root)


@dataclass(frozen=True)
class RedisState(KeptState):
    """In Redis, one hash per task: HGETALL "sunshower:{counts/0}:values". Acknowledged writes
    survive a crash of Redis only with `appendonly yes`, `appendfsync always`. A Redis that evicts
    keys (`maxmemory-policy allkeys-…`) is refused with ConfigError when the state is opened."""

    url: str | Secret
    kind: StateKind = StateKind.OPAQUE
    name: str | None = None
    prefix: str = "sunshower"

    def __post_init__(self) -> None:
        check_all(self, {"url": _URL}, "RedisState: ")
        object.__setattr__(self, "url", address(self.url))

    @property
    def where(self) -> str:
        return f"Redis at {self.url}, {self.prefix}"

    def make(self, place: Place) -> StoredMap:
        from sunshower.state.redis_backing import check_policy

        check_policy(self.url)
        return super().make(place)

    def open(self, home: Home) -> Backing:
        from sunshower.state.redis_backing import RedisBacking

        return RedisBacking(self.url, home, prefix=self.prefix)

    def homes(self) -> list[Home]:
        from sunshower.state.redis_backing import homes

        return homes(self.url, self.prefix)


@dataclass(frozen=True)
class PostgresState(KeptState):
    """In PostgreSQL, one table per state: SELECT key, value FROM "counts"."""

    dsn: str | Secret
    kind: StateKind = StateKind.OPAQUE
    name: str | None = None

    def __post_init__(self) -> None:
        check_all(self, {"dsn": ADDRESS}, "PostgresState: ")
        object.__setattr__(self, "dsn", address(self.dsn))

    @property
    def where(self) -> str:
        return f"PostgreSQL at {self.dsn}"

    def open(self, home: Home) -> Backing:
        from sunshower.state.postgres_backing import PostgresBacking

        return PostgresBacking(self.dsn, home)

    def homes(self) -> list[Home]:
        from sunshower.state.postgres_backing import homes

        return homes(self.dsn)
