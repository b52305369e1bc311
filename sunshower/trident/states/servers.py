"""States in servers that many machines reach: ZooKeeper, Redis, PostgreSQL."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from sunshower.stores.backing import Backing, Home
from sunshower.trident.states.factories import KeptState
from sunshower.trident.states.port import StateKind


@dataclass(frozen=True)
class ZooKeeperState(KeptState):
    """In a ZooKeeper, a node for each key: for small states. A batch has less than a megabyte.

    The node of key "storm" is `<root>/<state>/<task>/values/%22storm%22`, and holds Storm's JSON.
    """

    hosts: str
    kind: StateKind = StateKind.OPAQUE
    name: str | None = None
    root: str = "/sunshower/states"

    @property
    def where(self) -> str:
        return f"ZooKeeper at {self.hosts}{self.root}"

    def open(self, home: Home) -> Backing:
        from sunshower.stores.zookeeper import ZooKeeperTree
        from sunshower.stores.zookeeper_backing import ZooKeeperBacking

        return ZooKeeperBacking(ZooKeeperTree(self.hosts), self.root, home)

    def homes(self) -> list[Home]:
        from sunshower.stores.zookeeper import ZooKeeperTree
        from sunshower.stores.zookeeper_backing import homes

        with closing(ZooKeeperTree(self.hosts)) as tree:
            return homes(tree, self.root)


@dataclass(frozen=True)
class RedisState(KeptState):
    """In a Redis, a hash for each task: HGETALL "sunshower:{counts/0}:values".

    What Redis has answered outlives its death only with `appendonly yes`, `appendfsync always`.
    """

    url: str
    kind: StateKind = StateKind.OPAQUE
    name: str | None = None
    prefix: str = "sunshower"

    @property
    def where(self) -> str:
        from sunshower.stores.redis_backing import shown

        return f"Redis at {shown(self.url)}, {self.prefix}"

    def open(self, home: Home) -> Backing:
        from sunshower.stores.redis_backing import RedisBacking

        return RedisBacking(self.url, home, prefix=self.prefix)

    def homes(self) -> list[Home]:
        from sunshower.stores.redis_backing import homes

        return homes(self.url, self.prefix)


@dataclass(frozen=True)
class PostgresState(KeptState):
    """In a PostgreSQL, a table for each state: SELECT key, value FROM "counts"."""

    dsn: str
    kind: StateKind = StateKind.OPAQUE
    name: str | None = None
    where = "PostgreSQL"  # an address may hold a password

    def open(self, home: Home) -> Backing:
        from sunshower.stores.postgres_backing import PostgresBacking

        return PostgresBacking(self.dsn, home)

    def homes(self) -> list[Home]:
        from sunshower.stores.postgres_backing import homes

        return homes(self.dsn)
