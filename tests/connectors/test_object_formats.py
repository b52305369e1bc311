"""What ObjectBatches reads of Parquet and JSON lines, and what ObjectFiles writes."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pytest
from pyarrow import parquet

from sunshower import Topology, run_inline
from sunshower.connectors import ObjectBatches, ObjectFiles, ObjectRecord
from sunshower.errors import IncompleteBatch, RecordMismatch, SourceError, TopologyFailed
from sunshower.trident import Bounds, FixedBatchSpout, InMemory, Skip, batches, count
from tests.trident.rigs.emitting import Drive

NS = 1_700_000_000_123_456_000  # a moment in whole microseconds
AT = datetime(2023, 11, 14, 22, 13, 20, 123_456)  # noqa: DTZ001


def record(annotation: Any) -> Any:
    return NamedTuple("Row", [("v", annotation)])


def written(folder: Path, column: Any, name: str = "1.parquet", **options: Any) -> None:
    table = column if isinstance(column, pa.Table) else pa.table({"v": column})
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    try:
        parquet.write_table(table, folder / name, **options)
    except pa.ArrowNotImplementedError:
        pytest.skip(f"pyarrow {pa.__version__} does not write {table.schema}")


def read(folder: Path, kind: Any, **options: Any) -> list[Any]:
    """The first batch of the objects in a folder; read twice, as in a replay."""
    drive = Drive(ObjectBatches(folder, type=kind, shares=1, ends=True, **options))
    rows = drive.emit(1)
    drive.restart()
    assert repr(drive.emit(1, 1)) == repr(rows)
    return rows


def typed(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Values that are numbers in Arrow."""
    return pa.array(values, pa.int64()).cast(kind)


# ---- times --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "annotation", "expected"),
    [
        (typed([NS], pa.timestamp("ns")), datetime, AT),
        (typed([NS], pa.timestamp("ns", "UTC")), datetime, AT.replace(tzinfo=UTC)),
        (typed([NS], pa.timestamp("ns", "+02:00")), datetime, AT.replace(tzinfo=UTC)),
        (typed([NS], pa.timestamp("ns", "Europe/Berlin")), datetime, AT.replace(tzinfo=UTC)),
        (pa.array([1_001_000], pa.time64("ns")), time, time(0, 0, 0, 1001)),
        (typed([-1_000], pa.duration("ns")), timedelta, timedelta(microseconds=-1)),
        (pa.array([[NS, None]], pa.list_(pa.timestamp("ns"))), list[datetime | None], [AT, None]),
        (pa.array([[NS]], pa.list_view(pa.timestamp("ns"))), list[datetime], [AT]),
        (pa.array([[NS]], pa.list_(pa.timestamp("ns"), 1)), list[datetime], [AT]),
        (pa.array([[("a", NS)]], pa.map_(pa.string(), pa.timestamp("ns"))), dict, {"a": AT}),
        (pa.array([{"a": NS}], pa.struct({"a": pa.timestamp("ns")})), dict, {"a": AT}),
        (typed([NS], pa.timestamp("ns")).dictionary_encode(), datetime, AT),
    ],
)
def test_times_with_nanoseconds_are_read_in_microseconds_if_they_are_whole(
    tmp_path: Path, column: pa.Array, annotation: Any, expected: Any
) -> None:
    written(tmp_path, column)
    assert read(tmp_path, record(annotation)) == [(expected,)]


def nanoseconds(value: int, other: int = NS) -> list[tuple[str, pa.Array, dict[str, bool]]]:
    """Columns of two values, the second of which may have nanoseconds."""
    times = typed([other, value], pa.timestamp("ns"))
    old = {"use_deprecated_int96_timestamps": True}
    lists = pa.ListArray.from_arrays([0, 1, 2], times)
    return [
        ("ns", times, {}),
        ("zone", typed([other, value], pa.timestamp("ns", "UTC")), {}),
        ("time", pa.array([other % 10**9, value % 10**9], pa.time64("ns")), {}),
        ("duration", typed([other, value], pa.duration("ns")), {}),
        ("list", lists, {}),
        ("map", pa.MapArray.from_arrays([0, 1, 2], pa.array(["a", "b"]), times), {}),
        ("struct", pa.StructArray.from_arrays([times], ["a"]), {}),
        ("int96", times, old),
        ("int96 in lists", lists, old),
    ]


@pytest.mark.parametrize("case", nanoseconds(NS + 1), ids=lambda case: case[0])
def test_a_record_that_would_lose_nanoseconds_is_refused_alone(tmp_path: Path, case: Any) -> None:
    _, column, options = case
    written(tmp_path, column, **options)
    seen: list[tuple[ObjectRecord, str]] = []

    def unreadable(stored: ObjectRecord, reason: str) -> Any:
        seen.append((stored, reason))
        return ("set aside",)

    rows = read(tmp_path, record(Any), unreadable=unreadable)
    assert len(rows) == 2
    assert rows[1] == ("set aside",)
    (stored, reason), _ = seen
    assert stored[:2] == ("1.parquet", 2)
    assert stored.value.num_rows == 1
    if not options:
        assert stored.value["v"].equals(parquet.read_table(tmp_path)["v"][1:])
    assert reason.startswith("v: ")
    with pytest.raises(IncompleteBatch, match=r"row 2 cannot be read: v: .*unreadable="):
        read(tmp_path, record(Any))


@pytest.mark.parametrize("by_spark", [False, True])
def test_int96_is_exact_in_all_years_and_of_spark_a_moment(tmp_path: Path, by_spark: bool) -> None:
    moments = [datetime.min, AT, datetime.max, None]  # noqa: DTZ901
    table = pa.table({"v": pa.array(moments, pa.timestamp("us"))})
    if by_spark:
        table = table.replace_schema_metadata({"org.apache.spark.version": "3.5.7"})
    file = parquet.ParquetWriter(
        tmp_path / "1.parquet", table.schema, use_deprecated_int96_timestamps=True
    )
    with file:
        file.write_table(table)
        if by_spark:
            file.add_key_value_metadata({"org.apache.spark.version": "3.5.7"})
    zone = UTC if by_spark else None
    values = [row.v for row in read(tmp_path, record(datetime | None))]
    assert values == [moment and moment.replace(tzinfo=zone) for moment in moments]


@pytest.mark.parametrize(
    "column",
    [
        typed([570_000_000_000_000, 0], pa.timestamp("ms")),
        pa.array([-(10**9), 0], pa.int32()).cast(pa.date32()),
        typed([2**62, 0], pa.duration("s")),
        pa.array([[("a", 1), ("a", 2)], []], pa.map_(pa.string(), pa.int64())),
        pa.array([[({"x": 1}, 2)], []], pa.map_(pa.struct({"x": pa.int64()}), pa.int64())),
    ],
    ids=["year 20000", "day", "duration", "a key twice", "keys that are records"],
)
def test_a_value_that_python_does_not_have_fails_its_record_alone(
    tmp_path: Path, column: pa.Array
) -> None:
    written(tmp_path, column)
    assert len(read(tmp_path, record(Any), unreadable=lambda *_: None)) == 1
    with pytest.raises(IncompleteBatch, match="row 1 cannot be read: v: "):
        read(tmp_path, record(Any))


# ---- maps and other types -----------------------------------------------------------------------


class Shade(Enum):
    RED = "rot"


@pytest.mark.parametrize(
    ("key", "kind", "annotation"),
    [
        ("a", pa.string(), str),
        ("a", pa.large_string(), str),
        (1, pa.int64(), int),
        (2**64 - 1, pa.uint64(), int),
        (1.5, pa.float64(), float),
        (True, pa.bool_(), bool),
        (b"a", pa.binary(), bytes),
        (date(2026, 1, 2), pa.date32(), date),
        (AT, pa.timestamp("ns"), datetime),
        (Decimal("1.50"), pa.decimal128(5, 2), Decimal),
        (Shade.RED, pa.string(), Shade),
    ],
)
def test_a_map_is_a_dictionary_whatever_its_keys(
    tmp_path: Path, key: Any, kind: pa.DataType, annotation: Any
) -> None:
    stored = key.value if isinstance(key, Enum) else key
    column = pa.array([[(stored, 1)], [], None], pa.map_(kind, pa.int64()))
    written(tmp_path, column)
    rows = read(tmp_path, record(dict[annotation, int] | None))
    assert rows == [({key: 1},), ({},), (None,)]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array(["a"], pa.large_string()), "a"),
        (pa.array(["a"], pa.string_view()), "a"),
        (pa.array(["a"]).dictionary_encode(), "a"),
        (pa.array([[["a"]]], pa.large_list(pa.list_view(pa.string()))), [["a"]]),
        (pa.array([[1, 2]], pa.list_(pa.int8(), 2)), [1, 2]),
        (pa.array([2**64 - 1], pa.uint64()), 2**64 - 1),
        (pa.array([np.float16(1.5)], pa.float16()), 1.5),
        (pa.array([Decimal("9" * 60)], pa.decimal256(60, 0)), Decimal("9" * 60)),
        (pa.nulls(1), None),
        (pa.array([UUID(int=5).bytes], pa.uuid()), UUID(int=5)),
        (
            pa.array([[("a", [("b", 1)])]], pa.map_(pa.string(), pa.map_(pa.string(), pa.int8()))),
            {"a": {"b": 1}},
        ),
    ],
)
def test_all_types_of_columns_are_read(tmp_path: Path, column: pa.Array, expected: Any) -> None:
    written(tmp_path, column)
    assert read(tmp_path, record(Any)) == [(expected,)]


def test_files_of_several_schemas_are_read_by_the_annotations(tmp_path: Path) -> None:
    written(tmp_path, typed([NS], pa.timestamp("ns", "UTC")), "1.parquet")
    written(tmp_path, pa.array([AT], pa.timestamp("us", "UTC")), "2.parquet")
    written(tmp_path, pa.nulls(1), "3.parquet")
    moment = AT.replace(tzinfo=UTC)
    line = json.dumps({"v": moment.isoformat()})
    (tmp_path / "4.jsonl").write_text(line, encoding="utf-8-sig")
    values = [row.v for row in read(tmp_path, record(datetime | None))]
    assert values == [moment, moment, None, moment]


def test_an_object_that_is_no_parquet_or_has_a_column_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "1.parquet").write_bytes(b"")
    with pytest.raises(SourceError, match=r"1\.parquet cannot be read: .* correct the file"):
        read(tmp_path, record(int))
    written(tmp_path, pa.Table.from_arrays([pa.array([1])] * 2, names=["v", "v"]))
    with pytest.raises(SourceError, match="two columns 'v'"):
        read(tmp_path, record(int))


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_a_byte_order_mark_before_json_lines_is_no_part_of_them(tmp_path: Path, end: bytes) -> None:
    (tmp_path / "1.jsonl").write_bytes(b'\xef\xbb\xbf{"v": "\xef\xbb\xbf"}' + end)
    (tmp_path / "2.json").write_bytes(b"\xef\xbb\xbf" + end)
    assert read(tmp_path, record(str)) == [("\ufeff",)]


# ---- records that cannot be read ----------------------------------------------------------------


class Order(NamedTuple):
    id: int
    at: datetime


LINE = '{{"id": {}, "at": "2026-01-02T00:00:00Z"}}\n'


@pytest.mark.parametrize("bad", ["{", "[5]", "5", '{"id": 1}', '{"id": 1, "at": "soon"}'])
def test_the_rows_of_a_skipped_batch_are_put_aside_and_the_others_processed(
    tmp_path: Path, bad: str
) -> None:
    lines = [LINE.format(number) for number in range(6)]
    (tmp_path / "1.jsonl").write_text("".join([*lines[:3], f"{bad}\n", *lines[3:]]))
    topology, seen = Topology("copy"), list[int]()
    source = ObjectBatches(tmp_path, type=Order, ends=True, bounds=Bounds(records=2))
    skip = Skip(attempts=2, dead_letters=tmp_path / "dead.txt")
    batches(topology, "in", source, store=InMemory(), skip=skip).peek(
        lambda order: seen.append(order.id)
    )
    run_inline(topology.graph())
    assert seen == [0, 1, 3, 4, 5]
    letters = [json.loads(line) for line in (tmp_path / "dead.txt").read_text().splitlines()]
    assert [letter["record"].get("id") for letter in letters] == [None, 2]
    assert "1.jsonl, line 4 cannot be read" in letters[0]["reason"]


# ---- writing ------------------------------------------------------------------------------------


def copy(folder: Path, rows: list[Any], size: int, kind: str = "parquet", **options: Any) -> None:
    """Write batches of rows."""
    topology = Topology("copy")
    spout = FixedBatchSpout(rows, size, type=type(rows[0]))
    stream = batches(topology, "in", spout, store=InMemory(), **options)
    stream.apply(ObjectFiles(folder, format=kind))
    run_inline(topology.graph())


@dataclass
class Inner:
    tags: tuple[str, ...]


BATCHES: list[tuple[Any, list[Any]]] = [
    (int | None, [None, 1]),
    (list[int], [[], [1]]),
    (list[list[str]] | None, [None, [[]], [["a"]]]),
    (Decimal, [Decimal("1.5"), Decimal("123456.789")]),
    (dict[str, int], [{}, {"a": 1}, {"b": 2}]),
    (dict[int, Inner | None], [{}, {1: None}, {2: Inner(("a",))}]),
    (Shade | None, [None, Shade.RED]),
    (Inner | None, [None, Inner(()), Inner(("a",))]),
    (float, [1.0, 0.5]),
    (time | None, [None, time(1, 2)]),
]


@pytest.mark.parametrize(("annotation", "values"), BATCHES)
def test_all_objects_have_the_same_columns(
    tmp_path: Path, annotation: Any, values: list[Any]
) -> None:
    kind = record(annotation)
    for name, size in (("one", 1), ("all", len(values))):
        copy(tmp_path / name, [kind(value) for value in values], size)
        files = sorted((tmp_path / name).rglob("*.parquet"))
        assert len({parquet.read_schema(file).remove_metadata() for file in files}) == 1
        table = pyarrow.dataset.dataset(tmp_path / name, partitioning="hive").to_table()
        assert table.num_rows == len(values)
        assert read(tmp_path / name, kind) == [(value,) for value in values]


@pytest.mark.parametrize("annotation", [set[int], frozenset[str], tuple[int, str], int | str, Any])
def test_a_type_without_a_column_is_refused_at_the_declaration(
    tmp_path: Path, annotation: Any
) -> None:
    with pytest.raises(RecordMismatch, match=r"Row\.v is .* no type in Parquet"):
        copy(tmp_path, [record(annotation)(None)], 1)


@pytest.mark.parametrize(
    "annotation", [set[int], bytes, dict[date, int], list[bytes | None], dict[str, frozenset[int]]]
)
def test_a_type_that_json_does_not_have_is_refused_at_the_declaration(
    tmp_path: Path, annotation: Any
) -> None:
    with pytest.raises(RecordMismatch, match=r"Row\.v .*JSON does not have"):
        copy(tmp_path, [record(annotation)(None)], 1, "jsonl")


def test_plain_tuples_have_no_columns_until_a_record_type_is_declared(tmp_path: Path) -> None:
    class Total(NamedTuple):
        v: int
        count: int

    def program(**options: Any) -> Topology:
        topology = Topology("count")
        spout = FixedBatchSpout([record(int)(1)] * 3, 3, type=record(int))
        rows = batches(topology, "in", spout, store=InMemory()).group_by("v")
        rows.aggregate(count(), **options).apply(ObjectFiles(tmp_path, format="parquet"))
        return topology

    with pytest.raises(RecordMismatch, match="fields=Total"):
        program()
    run_inline(program(fields=Total).graph())
    assert read(tmp_path, Total) == [(1, 3)]


@pytest.mark.parametrize(
    ("annotation", "value", "good"),
    [
        (int, 2**63, 1),
        (list[int], [2**70], [1]),
        (Decimal, Decimal("1e30"), Decimal(1)),
        (Decimal, Decimal("NaN"), Decimal(1)),
        (datetime, AT, AT.replace(tzinfo=UTC)),
        (time, time(1, tzinfo=UTC), time(1)),
        (str, "\ud800", "a"),
        (int, None, 1),
    ],
)
def test_a_value_without_a_place_in_its_column_fails_its_batch_alone(
    tmp_path: Path, annotation: Any, value: Any, good: Any
) -> None:
    kind, folder = record(annotation), tmp_path / "out"
    rows = [kind(good), kind(value), kind(good)]
    with pytest.raises(TopologyFailed, match=r"Row\(v=.* cannot be written: Row\.v"):
        copy(folder, rows, 1)
    skip = Skip(attempts=2, dead_letters=tmp_path / "dead.jsonl")
    copy(tmp_path / "all", rows, 1, skip=skip)
    assert read(tmp_path / "all", kind) == [(good,), (good,)]
    assert len((tmp_path / "dead.jsonl").read_text().splitlines()) == 1


# ---- CSV and compression ------------------------------------------------------------------------


def test_csv_and_compressed_objects_have_the_same_records(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("v;more\n1;x\n2;y\n")
    (tmp_path / "2.csv.gz").write_bytes(gzip.compress(b"v\n3\n"))
    (tmp_path / "3.jsonl.gz").write_bytes(gzip.compress(b'{"v": 4}\n'))
    assert read(tmp_path, record(int)) == [(1,), (2,), (3,), (4,)]


def test_a_row_of_csv_that_cannot_be_read_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("v\n1\nx\n")
    with pytest.raises(IncompleteBatch, match=r"1\.csv, line 3 cannot be read: Row\.v: 'x'"):
        read(tmp_path, record(int))
