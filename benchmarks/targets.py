"""The targets: the bound of each figure, and the reason if it is missed."""

from __future__ import annotations

from benchmarks.figures import Target
from benchmarks.nexmark import QUERIES_ONCE
from benchmarks.sweeps import pending

_OPERATORS = (
    'word count by operators over rows (`flat_map(split).group_by("word").aggregate(count())`), '
    "tracked"
)
_COLUMNS = "the same by columns"
_TUPLES = "hand-written bolts, plain tuples"
_CLASSES = "hand-written bolts, NamedTuples, a total for each word"
_TRACKED = "tracked ÷ untracked"
_LIGHT = "light load, three hops, isolate"
_KAFKA = "word count from Kafka by operators"
_KAFKA_BOLTS = "word count from Kafka by hand-written bolts"
_KAFKA_ONCE = "word count from Kafka, exactly once"
_ONCE = "exactly once ÷ at least once, same operators"
_EMPTY = "time of an empty batch, in ms"

_MESSAGES = (
    "An empty batch requires three synced writes to the disk, one after the other (6 ms), and four "
    "messages between the two workers."
)
_THREADS = (
    "About half of the processor time of the four messages between the workers was that of Ray's "
    "threads, when Ray's calls carried them."
)
_BARE_RECORDS = (
    "A number costs almost nothing, so the id, the edge and the entry of a report are a large part "
    "of the cost of a record."
)

_LIGHT_REASON = (
    "Five processes share two cores: at 1 tuple a second each of them has to be woken, and at "
    "1,000 a second a call of Ray takes less time than at 100. A spout that does not say when its "
    "next tuple is due (`isolate-poll`) is polled after a sixteenth of the time in which it had "
    "none, at most 0.1 s, and latency is measured from the time at which a tuple is due."
)
_PENDING = (
    "The allowed queue makes batches large. With half of the latency (a queue of 0.12 s) a word "
    "takes 6 to 10% more processor time (measured on a busy machine)."
)
_POLLED = (
    "The spout of a run pauses between bursts. Since 2026-11-24 it is polled more often during its "
    "pauses, for a lower latency. In a comparison, `pack` made 2,180 runs a minute with the former "
    "polling, and 1,330 with the present polling."
)
_PROFILE = (
    "A word takes about 600 ns of processor time: the user's generator 100, counting 130, checking "
    "and freeing the tuples 70, finding and selecting the targets 50, serialisation 35, the totals "
    "65, the sink 35, the spout and the acker 45, the rest 70. The loop takes 160 to 190 for split "
    "and count, on one of two processors, so the same speed requires at most twice that."
)

_AS_Q0 = "; 0.7 are those of q0: the source, the user's generator, the tuple trees. "
_WHY_NEXMARK = {  # why the targets of queries are missed
    "q5": (
        f"An event takes 2.6 µs of processor time{_AS_Q0}Two seconds have 200 auctions, so a "
        "quarter to a third of the bids of a batch are an entry of the state. Each window has 680 "
        "auctions: these are read in five panes, added, stored until the tree of the watermark is "
        "complete, and sent to the second window. The loop takes 0.4 µs."
    ),
    "q7": (
        f"An event takes 1 µs of processor time{_AS_Q0}Its event time is read in the source and "
        "in the window. Each batch, of 300 bids, is one row for the only task of the window, with "
        "a tree of its own: tracking has a quarter of the samples. The loop takes 0.2 µs."
    ),
    "q11": (
        f"An event takes 2.5 µs of processor time{_AS_Q0}The bids of a bidder in a batch are "
        "combined before they are sent. The loop takes 0.5 µs, and sorts at the end."
    ),
    "q12": (f"An event takes 1.2 µs of processor time{_AS_Q0}The loop takes 0.4 µs."),
    "q20": (
        f"An event takes 7.3 µs of processor time{_AS_Q0}Two stages read all events, for bids and "
        "for auctions. Each bid waits for ever: it is a row that is sent, a record that is stored, "
        "and an entry in the order of its key; and it is kept only after the functions behind it "
        "have had its pairs, so records are not joined many at once. The loop takes 0.4 µs."
    ),
}
_STATELESS = ("q0", "q1", "q2")
_NEXMARK = {  # query → what it is, and the multiple of the plain loop
    "q0": ("projection", 0.5),
    "q1": ("projection with a product", 0.5),
    "q2": ("filter", 0.1),
    "q5": ("a window behind a sliding window", 0.4),
    "q7": ("a window of all bids", 0.3),
    "q11": ("sessions", 0.25),
    "q12": ("a window by the clock", 0.3),
    "q20": ("a join without a limit", 0.12),
}

# The first table of the page.
CURRENT = (
    Target(
        "word_count/operators-rows/loop",
        1.0,
        row=_OPERATORS,
        against="bare loop",
        reason=_PROFILE,
    ),
    Target(
        "word_count/operators-rows/bytewax",
        2.2,
        row=_OPERATORS,
        against="Bytewax `count_final`",
        reason=(
            "`count_final` groups 100,000 words in Rust, and calls Python once for each distinct "
            "word. Sunshower checks and counts each word in Python."
        ),
    ),
    Target(
        "word_count/operators-rows/storm",
        3,
        row=_OPERATORS,
        against="Storm with acking",
        reason=(
            "Storm's code is compiled by the JIT, and its fourth pass is measured. Sunshower calls "
            "a Python generator for each line, in a topology that has just started."
        ),
    ),
    Target(
        "word_count/operators-rows/flink",
        1,
        row=_OPERATORS,
        against="Flink with checkpoints",
        reason=(
            "Flink's code is compiled by the JIT, and does not track records: it writes a "
            "checkpoint each second, and this pass takes less than a second. Splitting and "
            "counting a word in Python takes as long as Flink's whole processing of it."
        ),
    ),
    Target("word_count/operators-rows/pyflink", 10, row=_OPERATORS, against="PyFlink"),
    Target(
        "word_count/operators-rows-uncompiled/operators-rows",
        0.6,
        row="the same without compiled loops",
        against="the same with them",
    ),
    Target(
        "word_count/operators-rows-sqlite/operators-rows",
        0.8,
        row="the same with durable state (SQLite)",
        against="the same in memory",
        reason=(
            "All waiting batches are written together before their acks are sent: 77 to 121 writes "
            "for a million words. Each row of a write takes 8 to 10 µs, 3 of them in SQLite."
        ),
    ),
    Target(
        "word_count/operators-columns/loop",
        2.5,
        row=_COLUMNS,
        against="bare loop",
        reason=(
            "In one process a word takes 260 ns: splitting 20 and grouping 25 (both in Arrow). The "
            "rest is for the combined rows, one for ten words: hashing, serialisation, totals in a "
            "dictionary, and the sink. Batches begin with one line, and need 0.2 s to become large "
            "enough for Arrow: with 8 million words the speed is 1.4 times that of the loop."
        ),
    ),
    Target(
        "word_count/operators-columns/flink",
        2,
        row=_COLUMNS,
        against="Flink",
        reason="The reasons of the previous entry; also, Flink's fourth pass is measured.",
    ),
    Target(
        "word_count/pack-rows/loop",
        0.55,
        row=_TUPLES,
        against="bare loop",
        reason=(
            "Each word is a call of the counting bolt and an entry of a batch: it is checked, its "
            "target is found, and half of the words are encoded, sent and decoded. The loop does "
            "none of this."
        ),
    ),
    Target(
        "word_count/pack-rows/storm",
        1.8,
        row=_TUPLES,
        against="Storm",
        reason=(
            "Both call a function for each word and track it. A function call in Python takes more "
            "time than all of Storm's compiled code, which passes references within one process."
        ),
    ),
    Target("word_count/pack-rows/streamparse", 10, row=_TUPLES, against="streamparse (pystorm)"),
    Target(
        "word_count/pack-classes/two-processes",
        0.65,
        row=_CLASSES,
        against="the same functions in two plain processes",
        reason=(
            "Each word is checked against its class and grouped, and half of the words are sent to "
            "the other worker and created again there; two plain processes send nothing."
        ),
    ),
    Target(
        "word_count/pack-classes/storm",
        1,
        row=_CLASSES,
        against="Storm",
        reason=(
            "As for plain tuples; also, creating a NamedTuple takes 200 ns, and half of them are "
            "created twice: in the worker that emits, and in the worker that counts."
        ),
    ),
    Target(
        "word_count/pack-classes/bytewax",
        1.8,
        row=_CLASSES,
        against="Bytewax `stateful_map`",
        reason=(
            "Each word is a NamedTuple, which is checked, and has an entry in a batch and an edge; "
            "Bytewax has plain pairs, and does not track them."
        ),
    ),
    Target(
        "const_id_null/pack-rows/storm", 3, row="const → id → null, tracked, pack", against="Storm"
    ),
    Target(
        "word_count/pack-rows/untracked",
        0.85,
        row=f"{_TRACKED}: word count, hand-written bolts",
        reason=(
            "Each word has an edge, which is drawn, sent and reported; without tracking only its "
            "text is sent."
        ),
    ),
    Target(
        "word_count/operators-rows/untracked",
        0.85,
        row=f"{_TRACKED}: word count, operators",
        reason=(
            "Each line, and each combined record, has an id, an edge and an entry of a report. It "
            "is missed by less than the spread of the rounds."
        ),
    ),
    Target(
        "const_null/pack-rows/untracked",
        0.85,
        row=f"{_TRACKED}: const → null, pack",
        reason=_BARE_RECORDS,
    ),
    Target(
        "const_null/isolate-rows-1024/untracked",
        0.85,
        row=f"{_TRACKED}: const → null, isolate",
        reason=_BARE_RECORDS,
    ),
    *(
        Target(
            f"latency/isolate-{rate}-p{percent}/ray",
            at_most=bound,
            row=_LIGHT,
            against=f"p{percent} of one bare Ray round trip, {rate:,} a second",
            reason=_LIGHT_REASON,
        )
        for percent, bound in ((50, 4), (99, 15))
        for rate in (1, 10, 100, 1_000)
    ),
    Target(
        "requests/single-p50/ray",
        at_most=2,
        row="requests, one caller",
        against="p50 of a chain of two bare Ray actors",
    ),
    Target(
        "requests/sunshower/callers-32",
        2_000,
        row="answers a second of 32 callers",
        reason="Each request is a call of a Ray actor, and the 32 callers share two cores with the "
        "topology. A chain of two bare actors has half as many answers in the same rounds.",
    ),
    Target(
        "pending/sunshower/auto-p50",
        at_most=100,
        row="word count by operators under full load, adaptive pending: p50 in ms",
        reason=_PENDING,
    ),
    *(
        Target(
            f"pending/auto/{number}",
            0.95,
            row="speed of the same word count",
            against=f"that with {number:,} pending lines for each spout task",
            reason=_PENDING,
        )
        for number in pending.FIXED
    ),
    Target(
        "kafka_words/operators/quix",
        3,
        row=_KAFKA,
        against="Quix",
        reason="It is missed by less than the spread of the rounds.",
    ),
    Target("kafka_words/operators/faust", 10, row=_KAFKA, against="Faust"),
    Target(
        "kafka_words/operators-sqlite/quix-rocksdb",
        3,
        row=f"{_KAFKA}, durable state (SQLite)",
        against="Quix with RocksDB",
    ),
    Target(
        "kafka/at-least-once/loop",
        0.6,
        row="Kafka → null",
        against="bare consume",
        reason=(
            "Each message becomes a record with an id, is tracked, and counts for the offset that "
            "is committed. The loop does none of this."
        ),
    ),
    Target(
        "trident/pack-opaque/at-least-once",
        0.7,
        row=f"{_ONCE}: opaque",
        reason="It is missed by less than the spread of the rounds.",
    ),
    Target("trident/pack-transactional/at-least-once", 0.7, row=f"{_ONCE}: transactional"),
    *(
        Target(
            f"nexmark/{query}/loop",
            bound,
            row=f"Nexmark {query}: {what}",
            against="plain loop",
            reason=_WHY_NEXMARK.get(query, ""),
        )
        for query, (what, bound) in _NEXMARK.items()
    ),
    *(
        Target(
            f"nexmark_once/{query}/ordinary",
            0.6,
            row="Nexmark, exactly once in batches",
            against=f"{query} as an ordinary stream, states in SQLite",
        )
        for query in QUERIES_ONCE
    ),
    *(
        Target(
            f"nexmark_files/{query}/{peer}",
            bound,
            row=f"Nexmark {query} from files",
            against=name,
        )
        for query in _NEXMARK
        for peer, name, bound in (
            ("flink-sql", "Flink SQL (Java)", 1.5),
            ("pyflink", "PyFlink", 3 if query in _STATELESS else 10),
        )
    ),
)

# The second table: bounds of earlier work that must still hold.
EARLIER = (
    Target(
        "ledger/in-order/dict",
        6,
        row="speed of updates of the acker's ledger",
        against="a dict of lists",
        reason="It is missed by less than the spread of the rounds.",
    ),
    Target("ledger/sunshower/memory", at_most=16, row="memory of the ledger, in bytes a slot"),
    Target(
        "simulation/sunshower/pack-10-faults",
        2_000,
        row="simulated runs a minute, pack",
        reason=_POLLED,
    ),
    Target(
        "simulation/sunshower/isolate-10-faults",
        2_000,
        row="simulated runs a minute, isolate",
        reason=(
            "Four simulated workers instead of one: each registers, sends packets and restarts. "
            + _POLLED
        ),
    ),
    Target(
        "word_count/pack-columns/loop",
        1.5,
        row="hand-written bolts, Arrow columns",
        against="bare loop",
        reason=(
            "A table is split and routed in one worker, and counted in the other; the loop sends "
            "nothing. The workers keep 1.6 of the two cores busy."
        ),
    ),
    Target(
        "const_null/isolate-rows-1024/three-actors",
        0.9,
        row="const → null, isolate",
        against="three bare Ray actors",
    ),
    Target("history/sample-64/none", 0.85, row="history of one tree in 64", against="no history"),
    Target(
        "history/sample-1/none",
        0.85,
        row="history of every tree",
        against="no history",
        reason="It is missed by less than the spread of the rounds.",
    ),
    Target(
        "idle/sunshower/isolate-6-tasks",
        at_most=0.03,
        row="processor time of an idle topology of six tasks, in cores",
        reason="Seven Ray actors without any code already use more than the target.",
    ),
    Target(
        "kafka/at-least-once/never-committed",
        0.95,
        row="speed with commits each second",
        against="without commits",
    ),
    Target("kafka_words/pack-rows/faust", 3, row=_KAFKA_BOLTS, against="Faust"),
    Target(
        "kafka_words/pack-rows/quix",
        3,
        row=_KAFKA_BOLTS,
        against="Quix",
        reason="Both call a Python function for each word; Sunshower also tracks each message.",
    ),
    Target("kafka_words/pack-columns/quix", 3, row="Kafka word count by columns", against="Quix"),
    Target("trident/pack-opaque/spark", 3, row="word count, exactly once", against="Spark"),
    Target(
        "trident/kafka-opaque/at-least-once",
        0.5,
        row=_KAFKA_ONCE,
        against="the same operators at least once",
    ),
    Target("trident/kafka-opaque/quix", 3, row=_KAFKA_ONCE, against="Quix"),
    Target(
        "trident/sunshower/empty-opaque-wall",
        at_most=10,
        row=f"{_EMPTY}: opaque",
        reason=_MESSAGES,
    ),
    Target(
        "trident/sunshower/empty-opaque-cpu",
        at_most=10,
        row=f"{_EMPTY}: opaque, processor time",
        reason=_THREADS,
    ),
    Target(
        "trident/sunshower/empty-transactional-wall",
        at_most=10,
        row=f"{_EMPTY}: transactional",
        reason=_MESSAGES,
    ),
    Target(
        "trident/sunshower/empty-transactional-cpu",
        at_most=10,
        row=f"{_EMPTY}: transactional, processor time",
        reason=_THREADS,
    ),
    Target(
        "trident/sunshower/empty-opaque-one-worker-wall",
        at_most=10,
        row=f"{_EMPTY}: opaque, in one worker",
    ),
    Target("trident/sunshower/memory-growth", at_most=16, row="memory growth, 20 M words, in MiB"),
    Target(
        "spark/ray/bare",
        at_most=1.3,
        row="a batch to Spark and back",
        against="bare RayDP",
        reason=(
            "Sunshower also calls the gateway's actor and queries the status of Spark's jobs, and "
            "in the first rounds Java still compiles."
        ),
    ),
    Target(
        "spark/local/bare",
        at_most=1.3,
        row="a batch to Spark and back",
        against="a bare local Spark",
    ),
    Target("spark/sunshower/memory-growth-local", at_most=16, row="growth of Spark, local, in MiB"),
    Target("spark/sunshower/memory-growth-ray", at_most=16, row="growth of Spark, RayDP, in MiB"),
)

TARGETS = CURRENT + EARLIER
