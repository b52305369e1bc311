"""What `--only` may name, in the order in which it is measured."""

NAMES = (
    "ledger",
    "simulation",
    "word-count",
    "word-count-classes",
    "constants",
    "history",
    "idle",
    "latency",
    "load",
    "sweeps",
    "memory",
    "start-up",
    "recovery",
    "kafka",
    "kafka-words",
    "trident",
    "trident-kafka",
    "spark",  # whose sessions stay
    "spark-kafka",
    "pipeline",
)
