"""Storage that outlives a process: trees of versioned nodes, and states of values by key.

Read `tree` (the port of trees, and a tree in memory), then `sqlite_tree` and `zookeeper_tree`: they
store the progress of batches and of groups. Then `backing` (the port of states), `sqlite`,
`redis_backing`, `postgres_backing` and again `zookeeper_tree`. `results` writes results and offsets
in one transaction. `log_progress` says what of a log is settled. `zookeeper_client` has the
settings of a connection.

Programs import the states themselves from here: they are declared in `sunshower/trident/states`.
"""

from typing import TYPE_CHECKING

from sunshower.installed import exports

if TYPE_CHECKING:
    from sunshower.trident.states.factories import MemoryState as MemoryState
    from sunshower.trident.states.factories import PostgresState as PostgresState
    from sunshower.trident.states.factories import RedisState as RedisState
    from sunshower.trident.states.factories import SqliteState as SqliteState
    from sunshower.trident.states.factories import StaticState as StaticState
    from sunshower.trident.states.factories import ZooKeeperState as ZooKeeperState


if not TYPE_CHECKING:
    __all__, __getattr__ = exports(__name__)
