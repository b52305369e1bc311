"""The sections of the page: the heading of each, its workloads, and a description of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    """A heading of the page, the workloads below it, and their description.

    `by_system`: has a table with a row for each variant and a column for each system.
    """

    heading: str
    workloads: tuple[str, ...]
    description: str
    by_system: bool = False


SECTIONS = (
    Section(
        "Word count",
        ("word_count", "word_count_peers"),
        "`rows`, `columns` and `silent` count, and emit no records; `classes`, `stateful_map` and "
        "`totals` emit a total for each word; operators emit the last total of each word in a "
        "batch. `operators-list` calls a function that returns a list, as the README does, and "
        "`operators-chain` is `filter.map.flat_map.filter`. `operators-rows-sqlite` has its state "
        "in SQLite, `…-untracked` has no ackers. `word_count_peers` are Sunshower's runs in the "
        "rounds of Storm, streamparse and Flink (all after warm-up), PyFlink, Pathway and Spark; "
        "`…-uncompiled` is without the compiled loops. PyFlink and streamparse, which are slower, "
        "count a twentieth of the words.",
    ),
    Section(
        "Nexmark",
        ("nexmark", "nexmark_once"),
        "Queries of `examples/nexmark` over events in memory, in two workers, compared with a "
        "plain loop over the same list in one process: no state (q0 to q2), windows (q5, q7, q12), "
        "sessions (q11), and a join without a limit (q20). The speed is that of all events, of "
        "which 92 % are bids. `nexmark_once`: exactly once in batches, compared with ordinary "
        "streams, both with their states in SQLite; q4 and q9 are running totals of a join.",
    ),
    Section(
        "Nexmark from files",
        ("nexmark_files",),
        "The same queries over CSV files, which each system reads and parses, in two tasks or two "
        "workers: M bids a second, and how many times as fast Sunshower is in the same rounds. A "
        "run takes at least ten seconds, from the first record that is read to the last row; "
        "Flink SQL has run the query before, over fewer events. Flink has exactly-once "
        "checkpoints every second. All answers are those of the plain loop, but Flink SQL finds "
        "one of several highest rows of a window (q5, q7), and Flink has q12 by event time.",
        by_system=True,
    ),
    Section(
        "Constants",
        ("const_null", "const_null_peers", "const_id_null", "const_id_null_peers"),
        "A spout emits numbers that a bolt discards, directly or through a bolt that forwards "
        "them; `…_peers` are Sunshower's runs in the rounds of Storm.",
    ),
    Section(
        "Latency",
        ("latency", "requests", "load"),
        "The time from when a tuple is due until it is acked, in an open loop: a late emit adds to "
        "it. `latency`: spout, two bolts in a row and a sink at 1, 10, 100 and 1,000 tuples a "
        "second, compared with a call between two bare Ray actors; `…-poll` does not say when its "
        "next tuple is due, and is polled. `requests`: one caller, and the answers of "
        "32 callers, compared with a chain of two bare actors. `load`: const → id → null at "
        "fractions of its highest speed.",
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
        "Messages of 100 bytes from one broker on the same machine: a bolt discards them "
        "(`kafka`), or their words are counted (`kafka_words`).",
    ),
    Section(
        "Exactly once",
        ("trident",),
        "Words are counted exactly once, with counts and progress in SQLite; `…-plain` has the "
        "same operators and state, at least once. `empty-…`: batches without rows.",
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
        "Batches to Spark and back, messages from Kafka to Spark, and a pipeline into a table.",
    ),
    Section(
        "Parts of the runtime",
        ("ledger", "simulation", "history", "idle"),
        "The acker's ledger compared with a dictionary, runs of the simulator, the cost of a "
        "history, and the processor time of an idle topology.",
    ),
)
