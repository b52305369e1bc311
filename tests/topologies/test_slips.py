"""Whatever stands in the place of an argument: it is taken, or refused by an error of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import sunshower
from sunshower import Counter, JsonLines, Records, Retry, TextFiles
from sunshower.errors import SunshowerError
from sunshower.kafka.consuming.start_position import StartTime
from sunshower.kafka.exactly_once.batch_spouts import BatchOptions, KafkaOpaque
from sunshower.kafka.exactly_once.offset_ranges import KafkaRanges
from sunshower.kafka.exactly_once.offsets_with_results import OffsetsWithResults
from sunshower.kafka.options import KafkaOptions
from sunshower.kafka.producing.kafka_bolt import KafkaBolt
from sunshower.kafka.producing.transactions import TransactionalKafkaBolt
from sunshower.kafka.spout import KafkaSpout
from sunshower.trident import (
    Bounds,
    FixedBatchSpout,
    MemoryState,
    SqliteState,
    batches,
    count,
    reduce,
    sliding,
    sum_,
    top,
    tumbling,
)
from sunshower.trident.declaration.store_places import InSqlite, InZooKeeper
from tests.topologies.examples import Word
from tests.topologies.examples import count as count_words

SLIPS = [None, "x", "", 5, -1, 2.5, [], [5], {"errors": 5}, Word, len, object()]
BROKER = {"bootstrap.servers": "b:1", "group.id": "g"}
Declare = Callable[..., Any]


def topology() -> Any:
    return sunshower.Topology("t")


def lines() -> Any:
    return topology().spout("lines", Records([Word("a")], type=Word))


def rows() -> Any:
    return batches(topology(), "rows", FixedBatchSpout([Word("a")], 1, type=Word))


def one(word: Word) -> Word:
    return word


def keep(word: Word) -> bool:
    return True


def many(word: Word) -> Any:
    yield word


def ask(state: Any, words: Sequence[Word]) -> list[int]:
    return []


def on(make: Callable[[], Any], word: str, *given: Any) -> Declare:
    """A method of what `make` makes; `given` come first."""
    return lambda *more, **named: getattr(make(), word)(*given, *more, **named)


def first(function: Declare, name: str) -> Declare:
    """Where the argument has no name: it is called `name` here."""
    return lambda **named: function(named.pop(name), **named)


NAMES = {"fields": Word, "name": "n", "not_exactly_once": False}
DECLARATIONS: dict[str, tuple[Declare, dict[str, Any]]] = {
    "Topology": (sunshower.Topology, {"id": "t", "config": None}),
    "spout": (
        on(topology, "spout"),
        {
            "id": "s",
            "impl": Records([Word("a")], type=Word),
            "parallelism": 1,
            "fields": None,
            "streams": None,
            "retry": None,
            "message_timeout_s": None,
            "tick_s": None,
        },
    ),
    "bolt": (
        on(topology, "bolt"),
        {
            "id": "b",
            "impl": count_words,
            "inputs": [],
            "parallelism": 1,
            "fields": None,
            "streams": None,
            "tick_s": None,
        },
    ),
    "grouped.bolt": (
        on(lambda: lines().shuffle(), "bolt"),
        {
            "id": "b",
            "impl": count_words,
            "parallelism": 1,
            "fields": None,
            "streams": None,
            "tick_s": None,
        },
    ),
    "stream": (on(lines, "stream"), {"id": "default", "type": Word}),
    "fields": (first(on(lines, "fields"), "field"), {"field": "word"}),
    "partial_key": (first(on(lines, "partial_key"), "field"), {"field": "word"}),
    "custom": (on(lines, "custom"), {"grouping": None}),
    "into": (on(lambda: lines().shuffle(), "into"), {"bolt": None}),
    "stream.bolt": (on(lines, "bolt"), {"id": "b", "impl": count_words}),
    "Records": (Records, {"source": [], "type": None, "fields": None}),
    "Counter": (Counter, {"stop": 5}),
    "TextFiles": (
        first(TextFiles, "file"),
        {"file": __file__, "encoding": "utf-8", "errors": "strict"},
    ),
    "JsonLines": (JsonLines, {"path": "x.jsonl", "fields": None}),
    "Retry": (
        Retry,
        {
            "attempts": 5,
            "initial_s": 0.1,
            "factor": 2.0,
            "max_s": 10.0,
            "jitter": 0.5,
            "dead_letters": False,
        },
    ),
    "batches": (
        batches,
        {
            "topology": sunshower.Topology("t"),
            "id": "b",
            "spout": FixedBatchSpout([], 1),
            "parallelism": 1,
            "store": None,
            "max_batches": None,
            "interval_s": None,
            "skip": None,
            "group": None,
        },
    ),
    "flat_map of batches": (on(rows, "flat_map"), {"function": many, "fields": None}),
    "map": (on(rows, "map"), {"function": one, "fields": None}),
    "filter": (on(rows, "filter"), {"predicate": keep}),
    "peek": (on(rows, "peek"), {"function": one}),
    "project": (first(on(rows, "project"), "field"), {"field": "word"}),
    "operate": (on(rows, "operate"), {"operator": None, "fields": ()}),
    "aggregate": (
        first(on(rows, "aggregate"), "aggregator"),
        {"aggregator": count(), "fields": None, "state": None, "parallelism": 1, "name": None},
    ),
    "partition_aggregate": (
        first(on(rows, "partition_aggregate"), "aggregator"),
        {"aggregator": count(), "fields": None},
    ),
    "grouped aggregate": (
        first(on(lambda: rows().group_by("word"), "aggregate"), "aggregator"),
        {
            "state": MemoryState(),
            "aggregator": count(),
            "fields": None,
            "name": None,
            "parallelism": 1,
        },
    ),
    "window": (
        first(on(rows, "window", tumbling(count=5)), "aggregator"),
        {"aggregator": count(), "state": MemoryState(), "fields": None, "name": "w"},
    ),
    "windows": (
        lambda window: rows().window(window, count(), state=MemoryState()),
        {"window": tumbling(count=5)},
    ),
    "group_by": (first(on(rows, "group_by"), "field"), {"field": "word"}),
    "min_by": (on(rows, "min_by"), {"field": "word"}),
    "top": (
        lambda **named: rows().aggregate(top(**named)),
        {"n": 3, "by": "word", "each": "word"},
    ),
    "reduce": (
        lambda **named: rows().aggregate(reduce(**named)),
        {"function": max, "initial": 0, "name": None},
    ),
    "sum_": (lambda field: rows().aggregate(sum_(field)), {"field": "word"}),
    "partition_persist": (
        on(rows, "partition_persist"),
        {"state": MemoryState(), "updater": ask, "fields": None, "name": None},
    ),
    "state_query": (
        on(rows, "state_query"),
        {"state": MemoryState(), "function": ask, "fields": "n"},
    ),
    "merge": (first(on(rows, "merge"), "other"), {"other": rows()}),
    "join": (
        lambda other=None, **named: (
            (mine := rows()),
            mine.join(mine.project("word") if other is None else other, **named),
        ),
        {"other": 5, "on": "word", "fields": ("word",), "parallelism": 1, "how": "inner"},
    ),
    "join on": (
        lambda **named: (mine := rows()).join(mine, **named),
        {"on": "word", "other_on": "word", "fields": None, "how": "inner", "parallelism": 1},
    ),
    "shuffle": (on(rows, "shuffle"), {"parallelism": 2}),
    "partition_by": (first(on(rows, "partition_by"), "field"), {"field": "word", "parallelism": 2}),
    "partition": (on(rows, "partition"), {"grouping": None, "parallelism": 2}),
    "named": (on(lambda: rows().shuffle(), "named"), {"id": "n"}),
    "records": (on(rows, "records"), {"id": "n"}),
    "FixedBatchSpout": (
        FixedBatchSpout,
        {"rows": [Word("a")], "size": 1, "type": None, "fields": None, "cycle": False},
    ),
    "Bounds": (Bounds, {"records": 5, "bytes": 5, "seconds": 5.0}),
    "tumbling": (tumbling, {"count": None, "seconds": 60, "field": "at", "late": 0.0}),
    "sliding": (sliding, {"count": None, "seconds": 60, "every": 10, "field": "at", "late": 0.0}),
    "InSqlite": (InSqlite, {"file": "x.db"}),
    "InZooKeeper": (InZooKeeper, {"hosts": "zk:2181"}),
    "SqliteState": (
        lambda **named: rows().aggregate(count(), state=SqliteState(**named)),
        {"file": "x.db", "kind": SqliteState("x.db").kind, "name": None},
    ),
    "KafkaSpout": (
        KafkaSpout,
        {
            "settings": BROKER,
            "topics": ["a"],
            "value": None,
            "key": None,
            "translate": None,
            "fields": (),
            "emits": None,
            "options": None,
            "deployment": None,
        },
    ),
    "KafkaSpout of a pattern": (KafkaSpout, {"settings": BROKER, "pattern": "a.*"}),
    "KafkaSpout of partitions": (KafkaSpout, {"settings": BROKER, "partitions": []}),
    "KafkaOpaque": (KafkaOpaque, {"settings": BROKER, "topics": ["a"], "options": None}),
    "KafkaRanges": (KafkaRanges, {"settings": BROKER, "topics": ["a"], "options": None}),
    "KafkaOptions": (
        KafkaOptions,
        {
            **dict.fromkeys(["guarantee", "first", "behind_max", "commit_s", "uncommitted_max"]),
            **dict.fromkeys(["refresh_s", "refetch", "directory", "sharing", "store"]),
        },
    ),
    "BatchOptions": (
        BatchOptions,
        {
            **dict.fromkeys(["bounds", "first", "until_end", "shortened", "refresh_s"]),
            **dict.fromkeys(["answer_s", "directory", "unreadable"]),
        },
    ),
    "StartTime": (StartTime, {"timestamp_ms": 1}),
    "KafkaBolt": (
        lambda **named: lines().shuffle().bolt("out", KafkaBolt(**named)),
        {
            "settings": BROKER,
            "topic": "t",
            "value": None,
            "key": None,
            "headers": None,
            "partition": None,
        },
    ),
    "TransactionalKafkaBolt": (
        TransactionalKafkaBolt,
        {"settings": BROKER, "topic": "t", "transactional_id": "x"},
    ),
    "OffsetsWithResults": (OffsetsWithResults, {"place": "x.db", "id": "x"}),
}


@pytest.mark.parametrize("what", DECLARATIONS)
def test_a_slip_is_taken_or_refused_by_an_error_of_ours(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    declare, right = DECLARATIONS[what]
    raw = []
    for name in right:
        for slip in SLIPS:
            try:
                declare(**{**right, name: slip})
            except SunshowerError:
                pass
            except Exception as error:
                raw.append(f"{what}({name}={slip!r}): {type(error).__name__}: {error}")
    assert not raw, "\n".join(raw)


FIVE: Any = 5
TEXT: Any = "5"
NOTHING: Any = None
COUNT = "it must be a whole number of at least"
REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: lines().bolt("b", count_words), r"declare a grouping, as in \.shuffle\(\)\.b"),
    (lambda: lines().shuffle().map(str), r"\.map\(…\) is called on a stream, not behind its group"),
    (lambda: lines().shuffle().join(lines()), r"before the grouping, or begin new tasks"),
    (lambda: topology().bolt("b", count_words, inputs=lines().shuffle()), r"\[stream\.shuffle"),
    (lambda: lines().shuffle().bolt("b", count_words, fields=5), "5 are not field names"),
    (lambda: lines().shuffle().bolt("b", count_words, streams=["errors"]), r'\{"errors": Error\}'),
    (lambda: lines().fields(["word"]), r"no field \['word'\]; its fields are: word"),
    (lambda: batches(topology(), "b", FixedBatchSpout([], 1), parallelism=TEXT), f"'5'; {COUNT} 1"),
    (lambda: Bounds(records=TEXT), f"records is '5'; {COUNT} 1"),
    (lambda: FixedBatchSpout([], TEXT), f"size is '5'; {COUNT} 1"),
    (lambda: tumbling(seconds=TEXT), "window: length is '5'; it must be a number"),
    (lambda: rows().merge(5), "5 is no stream of batches"),
    (lambda: rows().join(5, "word"), "5 is no stream of batches"),
    (lambda: rows().apply(5), "is 5; give a function"),
    (lambda: rows().aggregate(count(), state=MemoryState), "MemoryState is no state"),
    (lambda: InSqlite(NOTHING), "InSqlite: file is None; give a path"),
    (lambda: KafkaSpout(NOTHING, topics=["a"]), "settings is None; give what librdkafka"),
    (lambda: KafkaBolt({}, "t"), "the settings lack bootstrap.servers"),
    (lambda: Records(FIVE), "source is 5; give a list of records"),
    (lambda: Counter(TEXT), f"stop is '5'; {COUNT} 0, or None"),
]


@pytest.mark.parametrize(("slip", "said"), REFUSED)
def test_the_likeliest_slips_are_told_what_to_write(slip: Callable[[], Any], said: str) -> None:
    with pytest.raises(SunshowerError, match=said):
        slip()
