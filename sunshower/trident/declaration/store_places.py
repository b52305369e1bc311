"""Where a batch group stores its progress: values that open a store in each task.

Calling one opens a client; it raises StoreUnreachable if it cannot connect.

Storm: org.apache.storm.trident.topology.state.TransactionalState (only in ZooKeeper).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from sunshower.arguments import PATH
from sunshower.errors import ConfigError
from sunshower.state.memory_tree import MemoryForest, MemoryTree
from sunshower.state.sqlite import check_machine, machine
from sunshower.state.tree import Tree
from sunshower.state.zookeeper_client import ZooKeeperAccess


@dataclass(frozen=True)
class InSqlite:
    """Stores progress in a SQLite file, which all processes of the topology must share. Opening it
    on another machine than the one where it was declared raises ConfigError."""

    file: str | PurePath
    _machine: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        PATH.check("InSqlite: file", self.file)
        # Workers have another working directory.
        object.__setattr__(self, "file", Path(self.file).absolute())
        object.__setattr__(self, "_machine", machine())

    def __call__(self) -> Tree:
        from sunshower.state.sqlite_tree import SqliteTree

        check_machine(self.file, self._machine)
        return SqliteTree(str(self.file))


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

    def __call__(self) -> Tree:
        return MemoryTree(self.forest)

    def __deepcopy__(self, memo: Any) -> InMemory:
        return self  # copies of a declaration share their store

    def __reduce__(self) -> Any:
        raise ConfigError(
            "a store in memory cannot be shared by several processes: give "
            'store=InSqlite("batches.db") or InZooKeeper("zk:2181")'
        )
