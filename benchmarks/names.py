"""What `--only` may name, in the order in which it is measured, and what a run has by default."""

NAMES = (
    "ledger",
    "simulation",
    "word-count",
    "word-count-classes",
    "word-count-peers",
    "constants",
    "constants-peers",
    "history",
    "idle",
    "latency",
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
    "spark",  # whose sessions stay
    "spark-kafka",
    "pipeline",
)

# What `make bench` measures, in 15 minutes at most; `make bench-all` measures NAMES.
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
