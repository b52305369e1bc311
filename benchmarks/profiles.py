"""Where the time of the workloads that miss a target goes, as `sunshower profile` shows it.

Shares of the samples of the loops of all workers, by py-spy for 5 s (Kafka → null: 3 s), while the
machine did other work, too, on 2026-11-24 at commit 921b03d9.
docs/PROFILING.md says what each part is.
"""

from __future__ import annotations

_COMMIT = "commit 921b03d9"


def _profile(waiting: int, /, **shares: int) -> str:
    """`waiting` in percent of all samples, the others in percent of the rest of them."""
    ordered = sorted(shares.items(), key=lambda one: -one[1])
    parts = ", ".join(f"{name.replace('_', ' ')} {share}%" for name, share in ordered)
    head = f" [Profile](PROFILING.md#the-table) of {_COMMIT}: {waiting}% waiting; of the rest"
    return f"{head} {parts}."


OPERATORS = (
    _profile(
        3, operators=28, records=20, bolts=19, user_code=16, routing=6, tracking=4,
        serialisation=3, rest_of_the_runtime=3, spouts=2,
    )
    + " The loop that counts the words of a batch is 19 of the operators' 28."
)  # fmt: skip
SQLITE = (
    _profile(
        14, operators=54, user_code=9, bolts=9, records=8, routing=6, rest_of_the_runtime=6,
        tracking=4, serialisation=3,
    )
    + " Writes and commits of SQLite are 16 of the operators' 54; most of the others is the code "
    "around it that keeps the totals."
)  # fmt: skip
COLUMNS = (
    _profile(
        22, operators=29, user_code=21, tracking=16, rest_of_the_runtime=9, records=8,
        serialisation=8, bolts=5, routing=4,
    )
    + " Arrow's splitting is 15 of the user code's 21, its grouping 12 of the operators' 29."
)  # fmt: skip
TUPLES = (
    _profile(
        1, routing=26, user_code=25, bolts=12, records=11, serialisation=10,
        rest_of_the_runtime=8, tracking=7, spouts=1,
    )
    + " The loop that finds the target of each word by its key is 20 of the routing's 26."
)  # fmt: skip
CLASSES = (
    _profile(
        1, user_code=42, bolts=18, routing=12, rest_of_the_runtime=10, serialisation=7,
        records=6, tracking=4, spouts=1,
    )
    + " User code includes making the NamedTuples of words and totals."
)  # fmt: skip
LIGHT = (
    _profile(
        68, serialisation=46, rest_of_the_runtime=32, tracking=11, routing=5, bolts=3,
        spouts=2, records=1,
    )
    + " That is at 100 a second, all five workers together. Serialisation is mostly the kernel's "
    "sending and receiving of packets; calls of Ray that send statistics to the master are 11 of "
    "the runtime's 32. At 1,000 a second 53% is waiting; the other shares differ by 4 at most."
)  # fmt: skip
KAFKA_WORDS = _profile(
    3, operators=33, bolts=15, user_code=13, records=12, rest_of_the_runtime=8, tracking=8,
    routing=6, serialisation=5,
)  # fmt: skip
KAFKA_NULL = (
    _profile(
        2, operators=65, rest_of_the_runtime=12, tracking=11, spouts=4, bolts=4, user_code=2,
        records=1, routing=1,
    )
    + " The operators are the spout here: taking messages from the client is 35 of their 65, the "
    "rest makes columns of them."
)  # fmt: skip
EXACTLY_ONCE = (
    _profile(
        26, operators=67, user_code=17, records=7, serialisation=3, rest_of_the_runtime=3,
        routing=2, tracking=1,
    )
    + " The beginning and end of SQLite's transactions, where it waits for the disk, are 26 of the "
    "operators' 67, its writes 5. With words of Kafka, 18% is waiting, and of the rest operators "
    "are 64%, user code 18% and records 12%."
)  # fmt: skip
