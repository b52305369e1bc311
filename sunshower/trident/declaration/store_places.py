"""Where a batch group stores its progress: values that open a store in each task.

Calling one opens a client; it raises StoreUnreachable if it cannot connect.

Storm: org.apache.storm.trident.topology.state.TransactionalState (only in ZooKeeper).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sunshower.arguments import check_all
from sunshower.errors import ConfigError
from sunshower.state.memory_tree import MemoryForest, MemoryTree
from sunshower.state.sqlite import SqliteFile
from sunshower.state.tree import Tree
from sunshower.state.zookeeper_client import ZooKeeperAccess


@dataclass(frozen=True)
class InSqlite(SqliteFile):
    """Stores progress in a SQLite file, which all processes of the topology must share. Opening it
    on another machine than the one where it was declared raises ConfigError."""

    instead = "give InZooKeeper"

    @property
    def continues(self) -> bool:
        """Whether there may be progress of a former run."""
        return self.path.exists()

    def __call__(self) -> Tree:
        from sunshower.state.sqlite_tree import SqliteTree

        return SqliteTree(str(self.path))


@dataclass(frozen=True)
class InZooKeeper(ZooKeeperAccess):
    """Stores progress in ZooKeeper. See ZooKeeperAccess for `digest` and `tls`."""

    def __call__(self) -> Tree:
        from sunshower.state.zookeeper_tree import ZooKeeperTree

        return ZooKeeperTree.of(self)


@dataclass(frozen=True)
class InMemory:
    """Stores progress in this process, for topologies that run in it alone, as in the simulator."""

    forest: MemoryForest = field(default_factory=MemoryForest, compare=False)

    def __post_init__(self) -> None:
        check_all(self, {}, "InMemory: ")

    @property
    def continues(self) -> bool:
        """Whether there is progress of a former run of this process."""
        return bool(self.forest.nodes)

    def __call__(self) -> Tree:
        return MemoryTree(self.forest)

    def __deepcopy__(self, memo: Any) -> InMemory:
        return self  # copies of a declaration share their store

    def __reduce__(self) -> Any:
        raise ConfigError(
            "a store in memory cannot be shared by several processes: give "
            'store=InSqlite("batches.db") or InZooKeeper("zk:2181")'
        )
