"""The sections of the page: which workloads each shows, under which heading, and what they run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    """A heading of the page, the workloads below it, and what they run."""

    heading: str
    workloads: tuple[str, ...]
    says: str


SECTIONS = (
    Section(
        "Word count",
        ("word_count", "word_count_peers"),
        "`rows`, `columns` and `operators` count words in silence; `classes` and `stateful_map` "
        "have a total for each word. `operators-rows-sqlite` keeps its state in SQLite, "
        "`…-untracked` has no ackers. `storm`, `flink`, `pathway` and `spark` ran in the rounds of "
        "`word_count_peers`, the first two warm; `totals`: a total for each word.",
    ),
    Section(
        "Constants",
        ("const_null", "const_id_null", "const_null_peers", "const_id_null_peers"),
        "Numbers into nothing, directly or through one bolt that hands them on. `storm` ran in the "
        "rounds of `const_null_peers` and `const_id_null_peers`.",
    ),
    Section(
        "Latency",
        ("latency", "load"),
        "From the time at which a tuple is due until it is acked, in an open loop, so a late tuple "
        "counts as late. `latency`: spout, two bolts in a row and a sink at 1, 10, 100 and 1,000 "
        "tuples a second, beside a call between two bare Ray actors; `…-poll` has "
        "`idle_poll_s=0.001`. `load`: const → id → null at parts of its highest speed.",
    ),
    Section(
        "Ranges",
        ("sweeps",),
        "One number varies: bytes of a record, distinct keys, derived records of each input "
        "(which are counted), tasks, bolts in a row, acker shards.",
    ),
    Section(
        "Kafka",
        ("kafka", "kafka_words"),
        "Messages of 100 bytes from one broker on the same machine: into nothing, and their words "
        "counted.",
    ),
    Section(
        "Exactly once",
        ("trident",),
        "Words counted exactly once with counts and progress in SQLite; `…-plain` has the same "
        "operators and state at least once. `empty-…`: batches without rows.",
    ),
    Section(
        "Memory, start and recovery",
        ("memory", "start_up", "recovery"),
        "Bytes for each pending root, seconds until the first tuple, seconds until all is acked "
        "after a kill.",
    ),
    Section(
        "Spark",
        ("spark", "spark_kafka", "pipeline"),
        "Batches to Spark and back, messages of Kafka into Spark, and a pipeline into a table.",
    ),
    Section(
        "Parts of the runtime",
        ("ledger", "simulation", "history", "idle"),
        "The acker's ledger beside a dictionary, runs of the simulator, the cost of a history, and "
        "the processor time of a topology that has nothing to do.",
    ),
)
