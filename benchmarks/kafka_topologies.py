"""The topologies that read Kafka: messages that are discarded, and a count of their words."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.start_signal import POLL_S, StartSignal
from benchmarks.topologies import CountColumns, CountTuples, KeepTotals, Sink
from sunshower import Context, Derived, Topology, batch, count
from sunshower.config import Internals
from sunshower.kafka.options import KafkaOptions
from sunshower.kafka.spout import KafkaSpout
from sunshower.state import SqliteState
from sunshower.topologies.logs import Polled


class WaitingKafkaSpout(KafkaSpout):
    """Reads no messages before the start signal, and ends after its share of all messages."""

    def __init__(
        self,
        signal: StartSignal,
        settings: Mapping[str, Any],
        topic: str,
        messages: int,
        options: KafkaOptions | None = None,
        fields: Sequence[str] = ("value",),
    ) -> None:
        super().__init__(settings, topics=[topic], fields=fields, options=options)
        self._signal, self._left = signal, messages
        self._begun_s: float | None = None
        self._is_ready = False

    def open(self, context: Context) -> None:
        super().open(context)
        self._left //= context.parallelism
        self._is_ready = True

    def poll(self, limit: int) -> Polled[Any] | None:
        if not self._signal.has_started:
            return None
        polled = super().poll(limit)
        if polled is not None and len(polled.numbers):
            self._begun_s = self._begun_s or time.monotonic()
            self._left -= len(polled.numbers)
            polled.ended = self._left <= 0
        return polled

    def result(self) -> tuple[bool, float | None]:  # type: ignore[override]
        """(whether it is open, when the first message arrived)."""
        return self._is_ready, self._begun_s


class DiscardMessages(Sink):
    """Discards every message."""

    def prepare(self, context: Context) -> None:
        self.taken = 0

    def process(self, record: Any) -> None:
        self.taken += 1

    def result(self) -> tuple[int, float]:
        return self.taken, self.last_s


def split_value(record: Any) -> Iterator[tuple[bytes]]:
    for word in record[0].split():
        yield (word,)


def split_text(record: Any) -> Iterator[tuple[str]]:
    """Words as text, because the keys of a state in SQLite are JSON."""
    for word in record[0].decode().split():
        yield (word,)


@batch
def split_values(messages: pa.Table) -> Derived:
    texts = pc.utf8_trim_whitespace(messages["value"].combine_chunks().cast(pa.string()))
    words = pc.utf8_split_whitespace(texts)
    rows = pa.table({"word": pc.list_flatten(words)})
    return Derived(rows, pc.list_parent_indices(words).to_numpy())


def kafka_null(
    signal: StartSignal,
    settings: Mapping[str, Any],
    topic: str,
    messages: int,
    fields: Sequence[str],
    options: dict[str, Any],
) -> Topology:
    """One spout and one bolt, in one worker."""
    topology = Topology("kafka-null", internals=Internals(idle_poll_s=POLL_S), workers=1)
    source = WaitingKafkaSpout(signal, settings, topic, messages, KafkaOptions(**options), fields)
    topology.spout("source", source).local_or_shuffle().bolt("sink", DiscardMessages, fields=())
    return topology


def kafka_words(
    signal: StartSignal,
    settings: Mapping[str, Any],
    topic: str,
    messages: int,
    variant: str,
    file: Path | None = None,
) -> Topology:
    """Two tasks of each component, in two workers; only words are sent between the workers.

    `rows`: a call for each message, and for each word; `columns`: for each Arrow table;
    `operators`: `flat_map`, `group_by`, `aggregate`, and a sink that stores the last totals.
    `file`: for the state of the operators, which is in memory by default.
    """
    topology = Topology(f"kafka-words-{variant}", internals=Internals(idle_poll_s=POLL_S))
    source = topology.spout(
        "source", WaitingKafkaSpout(signal, settings, topic, messages), parallelism=2
    )
    near = source.local_or_shuffle()
    if variant == "operators":
        words = near.stage("split", parallelism=2).flat_map(split_text, fields=("word",))
        state = SqliteState(file) if file else None
        totals = words.group_by("word").aggregate(count(), state=state, parallelism=2)
        totals.local_or_shuffle().bolt("sink", KeepTotals, parallelism=2, fields=())
        return topology
    split, counter = {"rows": (split_value, CountTuples), "columns": (split_values, CountColumns)}[
        variant
    ]
    parts = near.bolt("split", split, parallelism=2, fields=("word",))
    parts.fields("word").bolt("sink", counter, parallelism=2, fields=())
    return topology
