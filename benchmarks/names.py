"""The names for `--only` in the order of the runs, and those that run by default."""

NAMES = (
    "ledger",
    "simulation",
    "word-count",
    "word-count-classes",
    "word-count-peers",
    "nexmark",
    "nexmark-once",
    "nexmark-peers",
    "constants",
    "constants-peers",
    "history",
    "idle",
    "latency",
    "requests",
    "load",
    "sweeps",
    "pending",
    "memory",
    "start-up",
    "recovery",
    "kafka",
    "kafka-words",
    "exactly-once",
    "trident",
    "trident-kafka",
    "spark",  # its sessions stay open until the end
    "spark-kafka",
    "pipeline",
)

# What `make bench` runs, in at most 15 minutes; `make bench-all` runs NAMES.
SHORT = (
    "ledger",
    "word-count",
    "word-count-classes",
    "constants",
    "latency",
    "kafka",
    "kafka-words",
    "exactly-once",
)
