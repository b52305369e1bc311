"""Storage that outlives a process: trees of versioned nodes, and states of values by key.

Read `tree` (the port of trees, and a tree in memory), then `sqlite_tree` and `zookeeper_tree`, which
store the progress of batches and of groups; `backing` (the port of states), then `sqlite`,
`redis_backing`, `postgres_backing` and `zookeeper_tree` again. `results` are rows stored with
offsets. `zookeeper_client` has the settings of a connection.
"""
