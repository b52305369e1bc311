"""Valid calls of the functions and classes that declare topologies and batches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import sunshower
from sunshower import (
    Config,
    Counter,
    DirectStream,
    JsonLines,
    Records,
    Resources,
    Retry,
    Secret,
    Stdout,
    TextFiles,
    asynchronous,
    average,
    batch,
    collect,
    count,
    max_,
    min_,
    reduce,
    sessions,
    sliding,
    sum_,
    top,
    tumbling,
)
from sunshower.state import (
    MemoryState,
    PostgresState,
    RedisState,
    SqliteState,
    StaticState,
    ZooKeeperState,
)
from sunshower.topologies.operators import steps
from sunshower.trident import (
    Bounds,
    FeederBatchSpout,
    FixedBatchSpout,
    InMemory,
    InSqlite,
    InZooKeeper,
    PlainSpout,
    PolledSpout,
    Skip,
    TextFileBatches,
    Tls,
    batches,
)
from tests.arguments.helpers import (
    Call,
    Calls,
    Visit,
    ask,
    counted,
    ended,
    first,
    functions,
    grouped,
    keep,
    like,
    lines,
    many,
    methods,
    on,
    one,
    persist,
    rows,
    small,
    topology,
    used,
    valid,
    visited,
    visits,
)
from tests.topologies.examples import ManualSpout, Word
from tests.topologies.examples import count as count_words


async def later(word: Word) -> Word:
    return word


def from_spout(columns: Any) -> Any:
    return topology().spout("s", Records([Word("a")], type=Word), streams={"x": columns})


def twice(**named: Any) -> Any:
    """A join of two streams."""
    left = visits()
    right = left.topology.spout("others", Records([Visit("a", 1.0, 1)], type=Visit))
    other = named.pop("other")
    return left.join(right if other is None else other, **named)


def with_table(**named: Any) -> Any:
    left = visits()
    right = left.topology.spout("others", Records([Visit("a", 1.0, 1)], type=Visit))
    return left.join(right.group_by("user").table(), **named)


def windowed(make: Callable[[], Any], window: Any) -> tuple[Call, dict[str, Any]]:
    def call(window: Any, aggregator: Any, **named: Any) -> Any:
        return make().window(window, aggregator, **named)

    arguments = {"window": window, "aggregator": count(), "state": MemoryState(), "name": "n"}
    return valid(like(make().window, call), **arguments)


def merged(make: Callable[[], Any], other: Any) -> Any:
    mine = make()
    return mine.merge(mine.filter(keep) if other is None else other)


def into(bolt: Any) -> None:
    declared = small()
    declared.spout("others", Records([Word("a")], type=Word)).shuffle().into(bolt)


SPOUT: dict[str, Any] = {"id": "s", "impl": Records([Word("a")], type=Word)}
TIME = {"field": "at"}
JOINED = ("user", "a", "b", "c", "d")
STATE = {"state": MemoryState(), "name": "n"}


def _aggregated(aggregator: Any) -> Any:
    return lines().aggregate(aggregator)


def _in_window(window: Any) -> Any:
    return visits().window(window, count())


TOPOLOGIES: Calls = {
    **functions(sunshower.Topology, Config, Resources, Retry, Counter, JsonLines, Stdout, batch),
    **functions(Records, source=[], type=Word),
    **functions(Secret, text="abcd", shown="x"),
    **functions(Secret.from_environment, name="PATH"),
    **functions(Secret.from_file, path=__file__),
    "TextFiles": valid(first(TextFiles, "file"), file=__file__),
    **methods("", topology, spout=SPOUT, requests={"type": Word}),
    "spout with dead letters": valid(
        on(topology, "spout"), **SPOUT, streams={"a": Word}, retry=Retry(dead_letters="x.jsonl")
    ),
    "DirectStream": valid(used(DirectStream, from_spout), columns=Word),
    "bolt": valid(on(topology, "bolt"), impl=count_words, inputs=[]),
    "asynchronous": valid(used(asynchronous, lambda mark: mark(later)), timeout_s=1.0),
    "asynchronous()": (first(asynchronous(), "function"), {"function": later}),
    "collect": (
        lambda field, more, name: lines().aggregate(collect(field, more, name=name)),
        {"field": "word", "more": "word", "name": "n"},
    ),
    **{
        kind.__name__: valid(used(kind, _aggregated), **settings)
        for kind, settings in (
            (count, {}),
            (sum_, {}),
            (min_, {}),
            (max_, {}),
            (average, {}),
            (top, {"n": 3, "by": "word", "each": "word"}),
            (reduce, {"function": max, "initial": 0}),
        )
    },
    "tumbling": (used(tumbling, _in_window), {"count": 5}),
    "tumbling in time": (used(tumbling, _in_window), {"seconds": 60, **TIME, "late": 0.0}),
    "sliding": valid(used(sliding, _in_window), seconds=60, every=10, **TIME),
    "sessions": valid(used(sessions, _in_window), gap=5, **TIME),
    **methods("stream", lines, stream={"id": "default", "type": Word}, custom={}),
    "stream.fields": valid(first(on(lines, "fields"), "field")),
    "stream.partial_key": valid(first(on(lines, "partial_key"), "field")),
    **methods("grouped", lambda: lines().shuffle(), bolt={"impl": count_words}, stage={}),
    "stream.into": (into, {"bolt": "store"}),
    "stream.merge": (partial(merged, lines), {"other": None}),
    "stream.aggregate": valid(first(on(grouped(lines, "word"), "aggregate"), "aggregator")),
    "stream.window": windowed(grouped(visits, "user"), tumbling(seconds=1)),
    **methods(
        "by user",
        grouped(visits, "user"),
        process={
            "function": visited,
            "on_timer": ended,
            "event_time": "at",
            "ttl_s": 5.0,
            **STATE,
        },
        table={"field": "at"},
    ),
    "stream.join": valid(
        like(on(visits, "join"), twice),
        other=None,
        on="user",
        other_on="user",
        fields=JOINED,
        how="inner",
        within=5,
        field="at",
        other_field="at",
        **STATE,
    ),
    "stream.join of a table": (with_table, {"on": "user", "how": "inner", "fields": JOINED}),
}
for kind, make in (("stream", lines), ("batches", rows)):  # what both have
    TOPOLOGIES |= {
        **methods(kind, make, flat_map={"function": many}, map={}, filter={}, peek={}),
        f"{kind}.branch": valid(first(on(make, "branch"), "predicate")),
        f"{kind}.project": valid(first(on(make, "project"), "field")),
        f"{kind}.group_by": valid(first(on(make, "group_by"), "field")),
    }


def _declared(**named: Any) -> Any:
    return batches(topology(), "b", FixedBatchSpout([], 1, type=Word), **named)


BATCHES: Calls = {
    "batches": (
        _declared,
        {"store": InMemory(), "max_batches": 1, "interval_s": 0, "skip": Skip(), "group": "g"}
        | {"parallelism": 1, "resources": Resources()},
    ),
    "batches of": (
        batches,
        {"topology": topology(), "id": "b", "spout": FixedBatchSpout([Word("a")], 1, type=Word)},
    ),
    **functions(Skip, Bounds, InMemory, InSqlite, InZooKeeper, Tls, MemoryState, SqliteState),
    **functions(RedisState, url="redis://h"),
    **functions(PostgresState, ZooKeeperState),
    **functions(StaticState, values={}),
    **functions(PlainSpout, spout=Counter(5)),
    **functions(PolledSpout, spout=ManualSpout()),
    "TextFileBatches": valid(first(TextFileBatches, "file"), file=__file__),
    **functions(FixedBatchSpout),
    **functions(FeederBatchSpout, type=Word),
    **methods("FeederBatchSpout", FeederBatchSpout, feed={"rows": []}),
    "state.items": (lambda **named: [*MemoryState().items(**named)], {"state": None}),
    "batches.window": windowed(rows, tumbling(count=5)),
    "batches.operate": (on(rows, "operate"), {"operator": steps.Peek(one), "fields": Word}),
    "batches.partition_by": valid(first(on(rows, "partition_by"), "field")),
    "batches.apply": valid(first(on(rows, "apply"), "assembly"), assembly=lambda stream: stream),
    "batches.partition_aggregate": valid(first(on(rows, "partition_aggregate"), "aggregator")),
    "batches.aggregate": valid(first(on(rows, "aggregate"), "aggregator"), **STATE),
    **methods(
        "batches",
        rows,
        shuffle={},
        broadcast={},
        batch_global={},
        global_={},
        partition={},
        records={},
        min_by={},
        max_by={},
        partition_persist={"updater": persist, "fields": ("a",), **STATE},
        state_query={"state": StaticState({}), "function": ask, "fields": "n"},
    ),
    **methods(
        "batches by word",
        grouped(rows, "word"),
        process={"function": counted, **STATE},
        state_query={"state": StaticState({}), "fields": "n"},
    ),
    "batches.named": valid(on(lambda: rows().shuffle(), "named")),
    "batches.merge": (partial(merged, rows), {"other": None}),
    "batches.join": (
        lambda **named: (mine := rows()).join(mine, **named),
        {"on": "word", "other_on": "word", "fields": None, "how": "inner"}
        | {"parallelism": 1, "resources": Resources()},
    ),
}
