"""Valid calls of the functions and classes that declare topologies and batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
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
from sunshower.topologies.operators import steps
from sunshower.trident import (
    Bounds,
    FeederBatchSpout,
    FixedBatchSpout,
    InMemory,
    InSqlite,
    InZooKeeper,
    MemoryState,
    PlainSpout,
    PolledSpout,
    PostgresState,
    RedisState,
    Skip,
    SqliteState,
    StateKind,
    StaticState,
    TextFileBatches,
    Tls,
    ZooKeeperState,
    batches,
)
from tests.arguments.helpers import (
    Calls,
    FirstTask,
    Visit,
    ask,
    counted,
    ended,
    first,
    grouped,
    keep,
    lines,
    many,
    nothing,
    on,
    one,
    persist,
    rows,
    small,
    topology,
    visited,
    visits,
)
from tests.topologies.examples import ManualSpout, Word
from tests.topologies.examples import count as count_words


async def later(word: Word) -> Word:
    return word


def defaults(kind: type[Any]) -> dict[str, Any]:
    return {one.name: getattr(kind(), one.name) for one in fields(kind)}


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


def merged(make: Callable[[], Any], other: Any) -> Any:
    mine = make()
    return mine.merge(mine.filter(keep) if other is None else other)


def into(bolt: Any) -> None:
    declared = small()
    declared.spout("others", Records([Word("a")], type=Word)).shuffle().into(bolt)


SPOUT: dict[str, Any] = {"id": "s", "impl": Records([Word("a")], type=Word)}
COMPONENT: dict[str, Any] = {
    "parallelism": 1,
    "fields": None,
    "streams": None,
    "tick_s": None,
    "resources": Resources(),
}
TASKS = {"parallelism": 1, "resources": Resources()}
STATE = {**TASKS, "state": MemoryState(), "name": "n"}
JOINED = ("user", "a", "b", "c", "d")
VALUE = {"aggregator": count(), "fields": None}
FIELD = {"field": "word", "name": "n"}
TIME = {"field": "at", "late": 0.0}
FILE = {"file": __file__, "encoding": "utf-8", "errors": "strict"}
ZOOKEEPER: dict[str, Any] = {"hosts": "zk:2181", "session_timeout_s": 10.0, "digest": None}
ZOOKEEPER |= {"acl": (), "tls": None}
KIND = {"kind": StateKind.OPAQUE, "name": None}
RETRY = {**defaults(Retry), "dead_letters": False}

TOPOLOGIES: Calls = {
    "Topology": (sunshower.Topology, {"id": "t", "config": None, "workers": 2}),
    "Config": (Config, defaults(Config)),
    "Resources": (Resources, defaults(Resources)),
    "Secret": (Secret, {"text": "abcd", "shown": "x"}),
    "Secret.from_environment": (Secret.from_environment, {"name": "PATH"}),
    "Secret.from_file": (Secret.from_file, {"path": __file__}),
    "Retry": (Retry, RETRY),
    "Records": (Records, {"source": [], "type": Word, "fields": None}),
    "Counter": (Counter, {"stop": 5}),
    "TextFiles": (first(TextFiles, "file"), FILE),
    "JsonLines": (JsonLines, {"path": "x.jsonl"}),
    "Stdout": (Stdout, {"format": None}),
    "spout": (
        on(topology, "spout"),
        {**SPOUT, **COMPONENT, "retry": None, "message_timeout_s": None},
    ),
    "spout with dead letters": (
        on(topology, "spout"),
        {**SPOUT, "streams": {"a": Word}, "retry": Retry(dead_letters="x.jsonl")},
    ),
    "DirectStream": (
        lambda columns: topology().spout(**SPOUT, streams={"x": DirectStream(columns)}),
        {"columns": Word},
    ),
    "bolt": (on(topology, "bolt"), {"id": "b", "impl": count_words, "inputs": [], **COMPONENT}),
    "grouped.bolt": (
        on(lambda: lines().shuffle(), "bolt"),
        {"id": "b", "impl": count_words, **COMPONENT},
    ),
    "requests": (
        on(topology, "requests"),
        {"id": "q", "type": Word, "pending_max": 5, "retry": None, "message_timeout_s": None},
    ),
    "asynchronous": (
        lambda **named: asynchronous(**named)(later),
        {"concurrency": 1, "timeout_s": 1.0, "ordered": True},
    ),
    "asynchronous()": (first(asynchronous(), "function"), {"function": later}),
    "batch": (batch, {"function": nothing}),
    "count": (lambda **named: lines().aggregate(count(**named)), {"name": "n"}),
    **{
        kind.__name__: (lambda kind=kind, **named: lines().aggregate(kind(**named)), FIELD)
        for kind in (sum_, min_, max_, average)
    },
    "collect": (
        lambda field, more, name: lines().aggregate(collect(field, more, name=name)),
        {**FIELD, "more": "word"},
    ),
    "top": (
        lambda **named: lines().aggregate(top(**named)),
        {"n": 3, "by": "word", "each": "word", "name": "n"},
    ),
    "reduce": (
        lambda **named: lines().aggregate(reduce(**named)),
        {"function": max, "initial": 0, "name": None},
    ),
    "tumbling": (lambda **named: visits().window(tumbling(**named), count()), {"count": 5}),
    "tumbling in time": (
        lambda **named: visits().window(tumbling(**named), count()),
        {"seconds": 60, **TIME},
    ),
    "sliding": (
        lambda **named: visits().window(sliding(**named), count()),
        {"seconds": 60, "every": 10, **TIME},
    ),
    "sessions": (lambda **named: visits().window(sessions(**named), count()), {"gap": 5, **TIME}),
    "stream.stream": (on(lines, "stream"), {"id": "default", "type": Word}),
    "stream.fields": (first(on(lines, "fields"), "field"), {"field": "word"}),
    "stream.partial_key": (first(on(lines, "partial_key"), "field"), {"field": "word"}),
    "stream.custom": (on(lines, "custom"), {"grouping": FirstTask()}),
    "stream.stage": (on(lambda: lines().shuffle(), "stage"), {"id": "x", **TASKS}),
    "stream.into": (into, {"bolt": "store"}),
    "stream.merge": (partial(merged, lines), {"other": None}),
    "stream.aggregate": (
        first(on(grouped(lines, "word"), "aggregate"), "aggregator"),
        {**VALUE, **STATE},
    ),
    "stream.window": (
        lambda window, aggregator, **named: (
            visits().group_by("user").window(window, aggregator, **named)
        ),
        {"window": tumbling(seconds=1), **VALUE, **STATE},
    ),
    "stream.process": (
        on(grouped(visits, "user"), "process"),
        {
            "function": visited,
            "on_timer": ended,
            "fields": None,
            "event_time": "at",
            "late": 0.0,
            "ttl_s": 5.0,
            "version": 1,
            "migrate": None,
            **STATE,
        },
    ),
    "stream.table": (
        on(grouped(visits, "user"), "table"),
        {"field": "at", "broadcast": False, **STATE},
    ),
    "stream.join": (
        twice,
        {
            "other": None,
            "on": "user",
            "other_on": "user",
            "fields": JOINED,
            "within": 5,
            "how": "inner",
            "field": "at",
            "other_field": "at",
            "late": 0.0,
            **STATE,
        },
    ),
    "stream.join of a table": (with_table, {"on": "user", "how": "inner", "fields": JOINED}),
}
for kind, make in (("stream", lines), ("batches", rows)):  # what both have
    TOPOLOGIES |= {
        f"{kind}.flat_map": (on(make, "flat_map"), {"function": many, "fields": None}),
        f"{kind}.map": (on(make, "map"), {"function": one, "fields": None}),
        f"{kind}.filter": (on(make, "filter"), {"predicate": keep}),
        f"{kind}.peek": (on(make, "peek"), {"function": one}),
        f"{kind}.branch": (first(on(make, "branch"), "predicate"), {"predicate": keep}),
        f"{kind}.project": (first(on(make, "project"), "field"), {"field": "word"}),
        f"{kind}.group_by": (first(on(make, "group_by"), "field"), {"field": "word"}),
    }

BATCHES: Calls = {
    "batches": (
        lambda **named: batches(topology(), "b", FixedBatchSpout([], 1, type=Word), **named),
        {
            "store": InMemory(),
            "max_batches": 1,
            "interval_s": 0,
            "skip": Skip(),
            "group": "g",
            **TASKS,
        },
    ),
    "batches of": (
        batches,
        {"topology": topology(), "id": "b", "spout": FixedBatchSpout([Word("a")], 1, type=Word)},
    ),
    "Skip": (Skip, {"attempts": 5, "dead_letters": None}),
    "Bounds": (Bounds, {"records": 5, "bytes": 5, "seconds": 5.0}),
    "PlainSpout": (PlainSpout, {"spout": Counter(5), "repeats": False, "bounds": None}),
    "PolledSpout": (PolledSpout, {"spout": ManualSpout(), "bounds": None}),
    "TextFileBatches": (first(TextFileBatches, "file"), {**FILE, "bounds": None, "shares": 8}),
    "FixedBatchSpout": (
        FixedBatchSpout,
        {"rows": [Word("a")], "size": 1, "type": None, "fields": None, "cycle": False},
    ),
    "FeederBatchSpout": (FeederBatchSpout, {"type": Word, "fields": None}),
    "FeederBatchSpout.feed": (on(FeederBatchSpout, "feed"), {"rows": []}),
    "InMemory": (InMemory, {"forest": InMemory().forest}),
    "InSqlite": (InSqlite, {"file": "x.db"}),
    "InZooKeeper": (InZooKeeper, ZOOKEEPER),
    "Tls": (Tls, {"authority": "x.pem", "holder": None, "check_host": True}),
    "MemoryState": (MemoryState, KIND),
    "SqliteState": (SqliteState, {"file": "x.db", **KIND}),
    "RedisState": (RedisState, {"url": "redis://h", "prefix": "p", **KIND}),
    "PostgresState": (PostgresState, {"dsn": "postgresql://h/d", **KIND}),
    "ZooKeeperState": (ZooKeeperState, {"root": "/r", **ZOOKEEPER, **KIND}),
    "StaticState": (StaticState, {"values": {}}),
    "state.items": (lambda **named: [*MemoryState().items(**named)], {"state": None}),
    "batches.shuffle": (on(rows, "shuffle"), TASKS),
    "batches.broadcast": (on(rows, "broadcast"), TASKS),
    "batches.batch_global": (on(rows, "batch_global"), TASKS),
    "batches.global_": (on(rows, "global_"), {"resources": Resources()}),
    "batches.partition_by": (
        first(on(rows, "partition_by"), "field"),
        {"field": "word", **TASKS},
    ),
    "batches.partition": (on(rows, "partition"), {"grouping": FirstTask(), **TASKS}),
    "batches.records": (on(rows, "records"), {"id": "x", **TASKS}),
    "batches.named": (on(lambda: rows().shuffle(), "named"), {"id": "n"}),
    "batches.min_by": (on(rows, "min_by"), {"field": "word"}),
    "batches.max_by": (on(rows, "max_by"), {"field": "word"}),
    "batches.apply": (first(on(rows, "apply"), "segment"), {"segment": lambda stream: stream}),
    "batches.operate": (on(rows, "operate"), {"operator": steps.Peek(one), "fields": Word}),
    "batches.partition_aggregate": (
        first(on(rows, "partition_aggregate"), "aggregator"),
        VALUE,
    ),
    "batches.aggregate": (
        first(on(rows, "aggregate"), "aggregator"),
        {**VALUE, **STATE, "not_exactly_once": False},
    ),
    "batches.window": (
        lambda window, aggregator, **named: rows().window(window, aggregator, **named),
        {"window": tumbling(count=5), **VALUE, **STATE, "not_exactly_once": False},
    ),
    "batches.process": (
        on(grouped(rows, "word"), "process"),
        {"function": counted, "fields": None, **STATE},
    ),
    "batches.partition_persist": (
        on(rows, "partition_persist"),
        {
            "state": MemoryState(),
            "updater": persist,
            "fields": ("a",),
            "name": "n",
            "not_exactly_once": False,
        },
    ),
    "batches.state_query": (
        on(grouped(rows, "word"), "state_query"),
        {"state": StaticState({}), "function": None, "fields": "n", **TASKS},
    ),
    "batches.state_query with a function": (
        on(rows, "state_query"),
        {"state": StaticState({}), "function": ask, "fields": "n"},
    ),
    "batches.merge": (partial(merged, rows), {"other": None}),
    "batches.join": (
        lambda **named: (mine := rows()).join(mine, **named),
        {"on": "word", "other_on": "word", "fields": None, "how": "inner", **TASKS},
    ),
}
