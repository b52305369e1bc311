"""Where a batch group keeps what it knows: values that open a store in each task.

To call one opens a client, and raises StoreUnreachable where that cannot be.

Storm: org.apache.storm.trident.topology.state.TransactionalState, in ZooKeeper alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from sunshower.arguments import PATH, TEXT
from sunshower.errors import ConfigError
from sunshower.stores.memory_tree import MemoryForest, MemoryTree
from sunshower.stores.tree import Tree


@dataclass(frozen=True)
class InSqlite:
    """In a file, which all processes of the topology must see."""

    file: str | PurePath

    def __post_init__(self) -> None:
        PATH.check("InSqlite: file", self.file)
        # Workers have a working directory of their own.
        object.__setattr__(self, "file", Path(self.file).absolute())

    def __call__(self) -> Tree:
        from sunshower.stores.sqlite_tree import SqliteTree

        return SqliteTree(str(self.file))


@dataclass(frozen=True)
class InZooKeeper:
    """In a ZooKeeper."""

    hosts: str

    def __post_init__(self) -> None:
        TEXT.check("InZooKeeper: hosts", self.hosts)

    def __call__(self) -> Tree:
        from sunshower.stores.zookeeper import ZooKeeperTree

        return ZooKeeperTree(self.hosts)


@dataclass(frozen=True)
class InMemory:
    """In this process: for a topology that runs in it alone, as in the simulator."""

    forest: MemoryForest = field(default_factory=MemoryForest, compare=False)

    def __call__(self) -> Tree:
        return MemoryTree(self.forest)

    def __deepcopy__(self, memo: Any) -> InMemory:
        return self  # copies of a declaration share their store

    def __reduce__(self) -> Any:
        raise ConfigError(
            "a store in memory cannot be shared by several processes: give "
            'store=InSqlite("batches.db") or InZooKeeper("zk:2181")'
        )
