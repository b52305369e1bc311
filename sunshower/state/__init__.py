"""Storage that outlives a process: trees of versioned nodes, and states of values by key.

Read `tree` (the port of trees, and a tree in memory), then `sqlite_tree` and `zookeeper_tree`: they
store the progress of batches and of groups. Then `backing` (the port of states), `sqlite`,
`redis_backing`, `postgres_backing` and again `zookeeper_tree`. `results` writes results and offsets
in one transaction. `zookeeper_client` has the settings of a connection.

Programs import the states themselves from here: they are declared in `sunshower/trident/states`.
"""

from typing import TYPE_CHECKING

from sunshower.installed import lazy_exports

if TYPE_CHECKING:
    from sunshower.trident.states.factories import (
        MemoryState,
        PostgresState,
        RedisState,
        SqliteState,
        StaticState,
        ZooKeeperState,
    )

__all__ = [
    "MemoryState",
    "PostgresState",
    "RedisState",
    "SqliteState",
    "StaticState",
    "ZooKeeperState",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_exports(__name__, {"sunshower.trident.states.factories": " ".join(__all__)})
