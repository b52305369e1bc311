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
        "`rows`, `columns` and `silent` count and emit nothing; `classes`, `stateful_map` and "
        "`totals` emit a total for each word; operators emit the last total of each word and "
        "batch. `operators-rows-sqlite` keeps its state in SQLite, `…-untracked` has no ackers. "
        "`word_count_peers` has our runs in the rounds of Storm and Flink, both warm, Pathway and "
        "Spark.",
    ),
    Section(
        "Constants",
        ("const_null", "const_null_peers", "const_id_null", "const_id_null_peers"),
        "Numbers into nothing, directly or through one bolt that hands them on; `…_peers` has our "
        "runs in the rounds of Storm.",
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
        ("sweeps", "pending"),
        "One number varies: bytes of a record, distinct keys, derived records of each input "
        "(which are counted), tasks, bolts in a row, acker shards. `pending`: the word count by "
        "operators with the adaptive number of open trees, and with fixed ones.",
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
        "Bytes for each pending root, seconds from `submit` to the first tuple at the last bolt, "
        "and seconds from a SIGKILL to the first ack of a tuple that was emitted after it.",
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
