"""A record is the same, and its code does not run, on all the ways that a value can take."""

from __future__ import annotations

import json
import pickle
import re
import sqlite3
import uuid
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from io import BytesIO
from math import isnan
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import fastavro
import numpy as np
import psycopg
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyarrow import parquet

from sunshower import Context, Records, Topology
from sunshower.actors.shipping import CodeClasses, pickled
from sunshower.arrow.message_schemas import avro_schema, avro_value, kind_of_records
from sunshower.clock import ManualClock
from sunshower.codec import Codec, RowList
from sunshower.connectors import PostgresTable
from sunshower.connectors.file_formats import (
    JsonLinesWriter,
    ParquetWriter,
    json_records,
    parquet_records,
)
from sunshower.errors import RecordMismatch, RequestRefused, Unserialisable
from sunshower.failures import Cause, Failure
from sunshower.json_values import json_text
from sunshower.record_reader import record_reader
from sunshower.records import Schema
from sunshower.runtime.control.task_transfer import TaskTransfer
from sunshower.runtime.events.instrument import Instrument
from sunshower.runtime.plan import Plan, PlannedStream, make_plan
from sunshower.runtime.tasks.bolts.dead_letters import dead_letter
from sunshower.runtime.tasks.letter_replays import LetterReplays
from sunshower.runtime.tasks.spouts.retry_queue import Replay
from sunshower.runtime.tracking.batch import Batch
from sunshower.runtime.tracking.ids import EdgeIds
from sunshower.runtime.transport.output_streams import OutputStream, OutputStreams
from sunshower.runtime.transport.packets import decode_frame, encode_frame
from sunshower.runtime.value_copies import packed, pickled_copy
from sunshower.state import RedisState, SqliteState
from sunshower.topologies.graph import StreamSpec
from sunshower.topologies.operators.keyed.keyed_store import KeyedStore
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.states import Place, StateFactory
from sunshower.topologies.requests import Requests, fields_of
from tests.connectors.postgres_server import execute
from tests.kafka.producing.rig import BoltRig
from tests.runtime.field_values import Field, exactly, hashables, simple, values
from tests.runtime.field_values import enums as field_enums
from tests.trident.rigs.every_store import state_in, stores
from tests.values import annotated
from tests.values.kinds import KINDS as KINDS_OF_PYTHON
from tests.values.kinds import (
    OF_LIBRARIES,
    Shape,
    effects,
    enums,
    made_of,
    nested,
    of_any_library,
    of_libraries,
    stored,
)

KINDS = (*KINDS_OF_PYTHON, *OF_LIBRARIES)
nested |= of_any_library


class Carrier(NamedTuple):
    """A record of one field, which may hold any other record."""

    value: Shape[Any] | Field | Any


def plan() -> Plan:
    topology = Topology("values")
    for index, kind in enumerate([Carrier, *KINDS]):
        spout = topology.spout(f"spout-{index}", Records([], type=kind))
        spout.shuffle().bolt(f"bolt-{index}", _ignore)
    return make_plan(topology.graph())


def _ignore(record: Any) -> None: ...


PLAN = plan()
CLASSES = PLAN.streams[0].classes
CODEC = Codec(CLASSES)
CODE = CodeClasses(PLAN)


def in_frame(value: Any) -> Any:
    kind = type(value) if type(value) in KINDS else Carrier
    record = value if kind in KINDS else Carrier(value)
    stream = PlannedStream(0, "spout", StreamSpec("default", Schema.of(kind)), CLASSES)
    frame = decode_frame(encode_frame(3, 1, Batch(0, 7, [record]), stream, 1 << 24), [stream])
    assert frame.error is None
    (decoded,) = frame.batch.records
    return decoded if kind in KINDS else decoded.value


def in_part_of_batch(value: Any) -> Any:
    schema = Schema.of(type(value)) if type(value) in KINDS else Schema.of(Carrier)
    record = value if type(value) in KINDS else Carrier(value)
    (decoded,) = schema.records(CODEC.decode(CODEC.encode(RowList(schema.rows([record] * 2))))[:1])
    (near,) = schema.records(RowList(schema.rows([record])))
    assert stored(near) == stored(record)
    return decoded if type(value) in KINDS else decoded.value


def in_transfer(move: Callable[[TaskTransfer], TaskTransfer]) -> Callable[[Any], Any]:
    """The way of a value in what a task has in memory: the state of a snapshot, and a replay."""

    def travel(value: Any) -> Any:
        moved = move(TaskTransfer(state={"state": [value]}, waiting=[Replay(1, value, 1)]))
        assert stored(moved.waiting[0].payload) == stored(value)
        assert moved.waiting[0].payload is moved.state["state"][0], "it is one object still"
        return moved.state["state"][0]

    return travel


def in_copy_of_source(value: Any) -> Any:
    return deepcopy(Records([value], fields=["value"])).source[0]  # type: ignore[index]


def in_plan(value: Any) -> Any:
    topology = Topology("values")
    topology.spout("spout", Records([(value,)], fields=["value"]))
    shipped = pickle.loads(pickled(make_plan(topology.graph())))
    return shipped.graph.components["spout"].implementation.source[0][0]


def in_request(value: Any) -> Any:
    assume(type(value) in KINDS)
    schema = Schema.of(type(value))
    return Requests("requests", schema, 1)._record(pickle.loads(packed(fields_of(value), CLASSES)))


WAYS: dict[str, Callable[[Any], Any]] = {
    "frame": in_frame,
    "part of a batch": in_part_of_batch,
    "transfer on ray": in_transfer(lambda value: CODE.loads(CODE.dumps_by_value(value))),
    "savepoint on ray": in_transfer(lambda value: CODE.loads(CODE.dumps(value))),
    "transfer in the simulator": in_transfer(lambda value: pickled_copy(value, PLAN.record_types)),
    "savepoint in the simulator": in_transfer(
        lambda value: pickle.loads(packed(value, PLAN.record_types))
    ),
    "copy of a source": in_copy_of_source,
    "plan": in_plan,
    "request": in_request,
}
# Classes that say how they are pickled are pickled so where no record type of the plan is known.
BY_RULES_OF_PICKLE = ("copy of a source", "plan")


@pytest.mark.parametrize("way", WAYS)
@given(value=nested | enums)
def test_a_record_is_the_same_after_every_way(way: str, value: Any) -> None:
    before = stored(value)
    assume(way not in BY_RULES_OF_PICKLE or "Watched" not in repr(before))
    effects.clear()
    received = WAYS[way](value)
    assert effects == []
    assert stored(received) == before
    assert effects == []


# ---- states -------------------------------------------------------------------------------------


@pytest.fixture
def factory(request: pytest.FixtureRequest, tmp_path: Path) -> StateFactory | None:
    return None if request.param == "task" else state_in(request, request.param, tmp_path)


STORES = stores("task", "memory", "sqlite", marks=[pytest.mark.servers, pytest.mark.long])


def opened(factory: StateFactory | None) -> KeyedStore:
    store = KeyedStore(factory, "values", "here", CLASSES)
    store.open(Context("values", "bolt", 1, 0, 1, clock=ManualClock()))
    return store


@pytest.mark.parametrize("factory", STORES, indirect=True)
def test_a_record_is_the_same_after_each_read_of_a_state(factory: StateFactory | None) -> None:
    store, number = opened(factory), 0

    @given(st.lists(nested | enums, min_size=1, max_size=3))
    def check(values: list[Any]) -> None:
        nonlocal store, number
        before = stored(values)
        effects.clear()
        number += 1
        try:
            store.put(number, values)
        except Unserialisable as error:
            assert "surrogates" in str(error)  # noqa: PT017
            return
        assert stored(store.get(number)) == before
        store.commit()
        for _ in range(2):  # each write of an unchanged value would run the code again
            store.put(number, store.get(number))
            store.commit()
        moved = CODE.loads(CODE.dumps(store.snapshot()))
        store.close()
        store = opened(factory)
        store.restore(moved)
        assert stored(store.get(number)) == before
        assert stored(store.stored([number])[0]) == before
        assert effects == []

    check()
    store.close()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=3,
)


class Row(NamedTuple):
    id: int
    value: Any


COLUMNS = [
    *("boolean", "smallint", "integer", "bigint", "numeric", "numeric(9, 2)", "real", "money"),
    *("double precision", "text", "varchar(9)", "bytea", "uuid", "date", "time", "timetz"),
    *("timestamp", "timestamptz", "timestamptz(3)", "interval", "interval(0)", "jsonb", "json"),
    *("integer[]", "text[]", "numeric(9, 2)[]", "timestamptz[]", "bytea[]", '"char"', "name"),
]
in_columns = simple | field_enums
sized = st.integers(-9, 9) | st.decimals(places=2, min_value=-9, max_value=9) | st.floats(-9, 9)


@pytest.mark.servers
@pytest.mark.long
@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_has_the_same_value_or_the_record_is_refused_alone(
    postgres: str, column: str
) -> None:
    table = f"t{uuid.uuid4().hex[:8]}"
    execute(postgres, f'CREATE TABLE "{table}" (id int PRIMARY KEY, value {column})')
    bolt = PostgresTable(f"{postgres}&options=-cTimeZone%3DAsia/Kolkata", table, key="id")
    bolt.check_input(Schema.of(Row))
    driven, number = BoltRig(bolt), 0

    @given(in_columns | sized | json_values | st.lists(in_columns | sized, max_size=3))
    def check(value: Any) -> None:
        nonlocal number
        number += 2
        driven.out.acked.clear()
        driven.out.failed.clear()
        try:
            driven.give(Row(number, value))
        except (TypeError, ValueError) as error:  # no JSON
            assert value is not None, error  # noqa: PT017
        driven.take(Row(number + 1, None))
        assert Row(number + 1, None) in driven.out.acked, "it is refused alone"
        with psycopg.connect(postgres) as db:
            query = f'SELECT id, value FROM "{table}" WHERE id >= {number} ORDER BY id'
            rows = db.execute(query.encode()).fetchall()
        assert rows[-1] == (number + 1, None)
        assert len(rows) == len(driven.out.acked)
        if len(rows) == 2:
            assert is_stored_as(rows[0][1], value, column), rows[0][1]

    check()
    bolt.cleanup()


def is_stored_as(stored: Any, value: Any, column: str) -> bool:
    """Whether what psycopg has read is the value; a text if the database has made one of it."""
    if isinstance(value, Enum):
        return is_stored_as(stored, value.value, column)
    if isinstance(value, str) and (column == "money" or not isinstance(stored, str)):
        return True  # the database has read it
    if isinstance(value, list | tuple) and isinstance(stored, list):
        if not stored and all(part in ([], ()) for part in value):
            return True  # the database has one empty array, of any number of dimensions
        pairs = zip(stored, value, strict=True)
        return all(is_stored_as(item, other, column) for item, other in pairs)
    if isinstance(stored, str) and not isinstance(value, str):
        return is_text_of(stored, value)
    if type(value) is date and isinstance(stored, datetime):
        return (stored.date(), stored.time()) == (value, time())
    if isinstance(value, float) and isinstance(stored, int | Decimal) and column != "real":
        return float(stored) == value or (isnan(value) and isnan(stored))
    return bool(plain_form(stored, column) == plain_form(value, column))


def plain_form(value: Any, column: str) -> Any:
    """A form that is equal for equal numbers and for equal moments."""
    if value.is_nan() if isinstance(value, Decimal) else isinstance(value, float) and isnan(value):
        return "nan"
    if column.startswith("real") and isinstance(value, int | float | Decimal):
        return np.float32(value)
    if column.startswith("double") and isinstance(value, int | float | Decimal):
        return float(value)
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value


def is_text_of(text: str, value: Any) -> bool:
    """Whether it is the text of a scalar, in PostgreSQL or in JSON."""
    if type(value) is bool:
        return text == str(value).lower()
    if isinstance(value, int | float | Decimal):
        return is_stored_as(Decimal(text.replace("$", "").replace(",", "")), value, "")
    if isinstance(value, timedelta):
        return text.startswith("P") or "day" in text or ":" in text
    text = re.sub(r"\[.*|#1", "", text)
    if isinstance(value, datetime):
        return is_stored_as(datetime.fromisoformat(text), value, "")
    if isinstance(value, time):
        return time.fromisoformat(text).replace(tzinfo=None) == value.replace(tzinfo=None, fold=0)
    return text == str(value)


def in_client(factory: Any, name: str) -> dict[str, str]:
    """The values of a state as a client of its store reads them: the text of a key → JSON."""
    match factory:
        case SqliteState():
            with sqlite3.connect(factory.file) as db:
                return dict(db.execute(f'SELECT key, value FROM "{name}"').fetchall())
        case RedisState():
            from redis import Redis

            with Redis.from_url(factory.url.reveal(), decode_responses=True) as client:
                return dict(client.hgetall(f"sunshower:{{{name}/0}}:values"))
        case _:
            rows = execute(factory.dsn.reveal(), f'SELECT key, value FROM "{name}"')
            return dict(rows)


@pytest.mark.parametrize("factory", ["sqlite", *STORES[3:5]], indirect=True)
def test_a_client_of_the_store_reads_what_was_put_into_a_state(factory: Any) -> None:
    state, number = factory.make(Place("values", "ignored", 0, 1)), 0

    @given(st.lists(json_values | hashables, min_size=1, max_size=3))
    def check(written: list[Any]) -> None:
        nonlocal number
        number += 1
        attempt = Attempt(number, 0, 1)
        state.begin_commit(attempt)
        try:
            state.multi_put(range(len(written)), written)
        except Unserialisable:
            state.abort()  # nothing of the batch is stored
            return
        state.commit(attempt)
        ours = dict(factory.items(factory.name))
        theirs = in_client(factory, factory.name)
        for key, value in enumerate(written):
            if value is not None:
                assert exactly(ours[key]) == exactly(value)
            if is_json(value) and value is not None:  # a key that was not there stays so
                txid, content, _ = json.loads(theirs[str(key)])
                assert (txid, content) == (number, value)

    check()
    state.close()


def is_json(value: Any) -> bool:
    """Whether JSON has the value as it is."""
    if isinstance(value, list):
        return all(map(is_json, value))
    if type(value) is dict:
        return all(map(is_json, [*value, *value.values()]))
    return value is None or type(value) in (bool, int, str)


# ---- dead letters -------------------------------------------------------------------------------


def letter_of(record: Any) -> Any:
    """The letter of a record, as a line of JSON that was read."""
    schema = Schema.of(type(record))
    (row,) = schema.rows([record])
    letter = dead_letter(
        *("spout", 1, dict(zip(schema.fields, row, strict=True))),
        *(Failure(Cause.EXCEPTION, "bolt", 1, 0, "why"), 1),
        time=0.0,
        forms=letters_of(type(record)).forms("default"),
    )
    return type(letter)(**json.loads(json_text(letter._asdict())))


def letters_of(kind: Any) -> LetterReplays:
    stream = OutputStream(0, StreamSpec("default", Schema.of(kind)), [], CLASSES)
    edges = EdgeIds(np.random.default_rng(0))
    streams = OutputStreams(1, {"default": stream}, edges, Instrument(1))
    nothing: Any = None
    owner: Any = SimpleNamespace(output_streams=streams)
    return LetterReplays(owner, nothing, nothing)


def is_utf8(value: Any) -> bool:
    return "\\ud" not in repr(stored(value))


class Exact(NamedTuple):
    """A record of annotations that several types fit."""

    loose: Any = None
    text_or_day: str | date = ""
    day_or_text: date | str = ""
    bytes_or_text: bytes | str = ""
    number: float = 0.0
    numbers: list[float | int | Decimal] = []  # noqa: RUF012
    many: dict[str, list[tuple[Any, ...] | frozenset[Any]]] = {}  # noqa: RUF012
    record: Shape[Any] | Field | None = None


@given(st.sampled_from(Exact._fields), values | hashables | nested)
def test_a_replayed_letter_has_the_same_value_in_every_field(name: str, value: Any) -> None:
    record = Exact(**{name: value})
    before = stored(record)
    effects.clear()
    try:
        replayed = letters_of(Exact)._record(letter_of(record))
    except RequestRefused as error:
        assert not is_utf8(record), error  # noqa: PT017
    else:
        assert stored(replayed) == before
    assert effects == []


# ---- Arrow tables -------------------------------------------------------------------------------


def in_a_table(seen: Any) -> Any:
    """What `stored` shows of a record after a table: Arrow has lists, and no tuples."""
    kind, content = seen
    if isinstance(content, dict):
        return kind, {name: in_a_table(item) for name, item in content.items()}
    if isinstance(content, list):
        return list if kind is tuple else kind, [*map(in_a_table, content)]
    return seen


@given(made_of(st.integers(0, 9)) | of_libraries(st.integers(0, 9)))
def test_a_record_is_the_same_after_a_table(record: Any) -> None:
    before, schema = stored(record), Schema.of(type(record))
    effects.clear()
    (row,) = schema.rows_of_table(schema.table([record]))
    assert effects == []
    assert stored(row) == in_a_table(before)


# ---- object files -------------------------------------------------------------------------------


@given(annotated.records())
def test_a_record_is_the_same_after_parquet_or_is_refused(
    typed: tuple[type[Any], list[Any]],
) -> None:
    kind, rows = typed
    try:
        writer = ParquetWriter(Schema.of(kind), "test")
    except RecordMismatch as error:
        assert "Row.value" in str(error)  # noqa: PT017
        return
    try:
        data = writer.joined([writer.encode(rows)])
    except Unserialisable as error:
        assert "Row.value" in str(error)  # noqa: PT017
        assert annotated.may_misfit(rows), error  # noqa: PT017
        return
    records = parquet_records("1.parquet", data, record_reader(kind))
    assert annotated.is_same(records, rows), records
    table = parquet.read_table(pa.BufferReader(data))
    schema = table.schema.remove_metadata()
    if int(pa.__version__.split(".")[0]) >= 24:  # older ones forget types in maps
        assert annotated.plain(table.to_pylist(maps_as_pydicts="strict")) == annotated.plain(rows)
        assert schema == writer.encode(rows).schema
    for row in rows:  # what is in a batch does not decide on the columns
        assert writer.encode([row]).schema == writer.encode(rows).schema


class Priced(NamedTuple):
    by_price: dict[Decimal, int]


def test_decimals_that_are_keys_of_avro_keep_their_digits() -> None:
    write = avro_value(kind_of_records(Priced))
    priced = Priced({Decimal(100): 1, Decimal("1.50"): 2})
    assert write(priced) == {"by_price": {"100": 1, "1.50": 2}}


@given(annotated.records())
def test_a_record_is_the_same_after_avro_or_is_refused(typed: tuple[type[Any], list[Any]]) -> None:
    kind, rows = typed
    try:
        columns = kind_of_records(kind)
        schema = fastavro.parse_schema(avro_schema(columns, {}))
    except RecordMismatch as error:
        assert "Row.value" in str(error)  # noqa: PT017
        return
    write, read = avro_value(columns), record_reader(kind)
    for row in rows:
        data = BytesIO()
        try:
            fastavro.schemaless_writer(data, schema, write(row))
        except (Unserialisable, UnicodeEncodeError) as error:
            assert annotated.may_misfit(row) or "a key is" in str(error), error  # noqa: PT017
        else:
            data.seek(0)
            assert annotated.is_same(read(fastavro.schemaless_reader(data, schema)), row)


@given(annotated.records())
def test_a_record_is_the_same_after_json_lines_or_is_refused(
    typed: tuple[type[Any], list[Any]],
) -> None:
    kind, rows = typed
    try:
        writer = JsonLinesWriter(Schema.of(kind), "test")
    except RecordMismatch as error:
        assert "JSON does not have" in str(error)  # noqa: PT017
        return
    try:
        data = writer.encode(rows)
    except Unserialisable as error:
        assert "nan" in str(error) or "inf" in str(error)  # noqa: PT017
        return
    assert list(map(json.loads, data.splitlines()))
    read = record_reader(kind)
    records = json_records("1.jsonl", data, lambda line: read(json.loads(line)))
    assert annotated.is_same(records, rows), records
