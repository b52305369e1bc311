"""What the components of a batch group tell each other: attempts, and parts of batches.

    $mastercoord-G   ──$batch──▶   $spoutcoord-S   ──$batch──▶   emitters  ──parts──▶   stages
                     ──$commit──▶  all that commit                         ──$coord-G──▶
                     ──$success─▶  $spoutcoord-S, emitters, stages that publish

A batch is a list of rows; it travels in parts, each of which is one tuple with many rows, to one
task. `$coord-G` tells each receiving task how many parts it was sent, so it knows when it has all.
Storm: org.apache.storm.trident.topology.TransactionAttempt (there every row is a tuple).
"""

from __future__ import annotations

from typing import Any, NamedTuple

BATCH, COMMIT, SUCCESS = "$batch", "$commit", "$success"


def master_id(group: str) -> str:
    """The spout that coordinates a batch group."""
    return f"$mastercoord-{group}"


def group_of(component: str) -> str | None:
    """Of which batch group a component is the coordinator; None: of none."""
    start = master_id("")
    return component.removeprefix(start) if component.startswith(start) else None


def letters_id(group: str) -> str:
    """The bolt that writes the rows of skipped batches to a file."""
    return f"{group}-dead-letters"


def coordinator_id(spout: str) -> str:
    """The bolt that says what each batch of a spout is made of."""
    return f"$spoutcoord-{spout}"


def counts_stream(group: str) -> str:
    """The direct stream that says how many parts were sent."""
    return f"$coord-{group}"


class Attempt(NamedTuple):
    """One try at a batch, and the message id of its tree.

    Attempts of one txid only grow, also over restarts; the epoch grows with each life of the
    coordinator. So (epoch, txid, attempt) is greater for whoever came later, and a store can refuse
    who came before.
    """

    txid: int  # of the batch: 1, 2, 3 …, committed in this order
    attempt: int  # 0, 1, 2 …
    epoch: int  # of the coordinator's life: 1, 2, 3 …


class Word(NamedTuple):
    """What `$batch` (of the master), `$commit` and `$success` carry."""

    txid: int
    attempt: int
    epoch: int
    skip: bool  # its rows go to the dead letters, and the batch is an empty one for all the others
    why: Any = None  # where `skip`: the last failure, see letters.py
    current: int = 0  # the lowest txid that was not committed when this was emitted


class Order(NamedTuple):
    """What `$batch` of a spout's coordinator carries: an attempt, and what it is to be made of."""

    txid: int
    attempt: int
    epoch: int
    skip: bool
    metadata: Any  # plain values, as MessagePack carries them
    why: Any = None  # as in Word
    current: int = 0  # as in Word


class Part(NamedTuple):
    """Some rows of a batch, for one task. Rows are tuples of values, in the order of the fields."""

    txid: int
    attempt: int
    epoch: int
    rows: list[Any]


class Count(NamedTuple):
    """How many parts of an attempt the sender has sent to this task, on all its streams."""

    txid: int
    attempt: int
    epoch: int
    parts: int
    late: bool = False  # said in the commit phase
