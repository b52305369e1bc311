"""Objects of a real S3 server, and files: read in batches, and written once for each batch."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from datetime import date
from http.server import BaseHTTPRequestHandler
from itertools import chain
from itertools import count as count_from
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyarrow import parquet

from sunshower import Topology
from sunshower.connectors import ObjectBatches, ObjectFiles
from sunshower.connectors.objects import ObjectFolder, _share, _Writer
from sunshower.errors import (
    ConfigError,
    IncompleteBatch,
    RecordMismatch,
    SourceError,
    StateMismatch,
    StoreError,
    StoreUnreachable,
    SunshowerError,
)
from sunshower.outages import is_unavailable
from sunshower.records import Schema
from sunshower.runtime.inline import run_inline
from sunshower.testing import run as run_in_test
from sunshower.topologies.components import Context
from sunshower.topologies.operators.port import Attempt
from sunshower.trident import Bounds, FixedBatchSpout, InMemory, InSqlite, batches, count
from tests.connectors.s3_server import SECRET, S3Server, s3_server
from tests.kafka.schema_registry import served
from tests.kafka.stage import Run, running
from tests.trident.rigs.emitting import Drive


class Order(NamedTuple):
    id: int
    day: date = date(2026, 1, 2)


def orders(first: int, end: int) -> list[Order]:
    return [Order(number) for number in range(first, end)]


def lines(records: list[Order]) -> bytes:
    return "".join(f'{{"id": {record.id}, "day": "{record.day}"}}\n' for record in records).encode()


def table(records: list[Order]) -> bytes:
    buffer = pa.BufferOutputStream()
    columns = {"id": [record.id for record in records], "day": [record.day for record in records]}
    parquet.write_table(pa.table(columns), buffer)
    return buffer.getvalue().to_pybytes()  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


_PLACES = count_from()


@pytest.fixture(params=["s3", "files"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty folder in S3, or of files."""
    if request.param == "files":
        return str(tmp_path / "orders of März")
    server: S3Server = request.getfixturevalue("s3")
    return server.url(f"{tmp_path.name}-{next(_PLACES)}")  # pytest uses a name again


@pytest.fixture
def folder(place: str) -> ObjectFolder:
    return ObjectFolder(place, "test")


def test_a_file_and_a_glob_are_no_folders(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    for name in ("a.jsonl", "*.jsonl"):
        with pytest.raises(ConfigError, match=r"Batches: .*\.jsonl is no folder; give the one"):
            ObjectBatches(tmp_path / name, type=Order)
    with pytest.raises(ConfigError, match=r"ObjectFiles: .* is no folder"):
        ObjectFiles(tmp_path / "a.jsonl")


def test_a_folder_lists_reads_and_replaces_objects(folder: ObjectFolder) -> None:
    assert folder.names() == []
    for name in ("b/2.jsonl", "a.jsonl", "_hidden/x", ".x", "b/_y"):
        folder.write(name, name.encode())
    assert folder.names() == ["a.jsonl", "b/2.jsonl"]
    assert folder.names("b") == ["b/2.jsonl"]
    folder.write("a.jsonl", b"new")
    assert folder.read("a.jsonl") == b"new"
    folder.delete("a.jsonl")
    folder.delete("a.jsonl")
    assert folder.read("a.jsonl") is None


def test_a_file_and_its_folders_are_on_the_disk_when_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, synced = tmp_path / "new" / "place", []
    file = place / "batch=1" / "part-0000.jsonl"

    def fsync(handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        synced.append((path, file.exists()))
        if path.is_file():
            assert path.read_bytes() == b"whole"
        real(handle)

    real = os.fsync
    monkeypatch.setattr(os, "fsync", fsync)
    folder = ObjectFolder(place, "test")
    folder.write("batch=1/part-0000.jsonl", b"whole")
    folders = [file.parent, place, place.parent, tmp_path]
    hidden = file.with_name(".part-0000.jsonl")
    assert synced == [(hidden, False), *((path, True) for path in folders)]
    synced.clear()
    folder.write("batch=1/part-0000.jsonl", b"whole")
    assert synced == [(hidden, True), (file.parent, True), (place, True)]
    synced.clear()
    folder.delete("batch=1/part-0000.jsonl")
    folder.delete("batch=1/part-0000.jsonl")
    assert synced == [(file.parent, False)]


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("records", [3, 1_000])
def test_each_record_is_in_one_batch_whatever_its_bounds(
    folder: ObjectFolder, place: str, records: int, tasks: int
) -> None:
    folder.write("2026/01.jsonl", lines(orders(0, 10)))
    folder.write("2026/02.parquet", table(orders(10, 15)))
    folder.write("2026/03.jsonl", b"\n")
    folder.write("2026/04.ndjson", lines(orders(15, 16)))
    folder.write("2026/05.csv", b"id,day")
    spout = ObjectBatches(place, type=Order, bounds=Bounds(records=records), shares=3, ends=True)
    order_batches = Drive(spout, tasks).run(100)
    assert sorted(chain(*order_batches)) == orders(0, 16)


def test_all_shares_are_read_in_turn(folder: ObjectFolder, place: str) -> None:
    for number in range(12):
        folder.write(f"{number:02}.jsonl", lines(orders(100 * number, 100 * number + 50)))
    spout = ObjectBatches(place, type=Order, bounds=Bounds(records=10), shares=3)
    drive = Drive(spout)
    shares = [
        {_share(f"{order.id // 100:02}.jsonl", 3) for order in drive.batch(n)} for n in (1, 2, 3)
    ]
    assert set.union(*shares) == {0, 1, 2}


def test_a_replayed_batch_has_the_same_records(folder: ObjectFolder, place: str) -> None:
    folder.write("1.jsonl", lines(orders(0, 5)))
    folder.write("2.jsonl", lines(orders(5, 9)))
    spout = ObjectBatches(place, type=Order, bounds=Bounds(records=7), shares=1)
    drive = Drive(spout)
    first, second = drive.emit(1), drive.emit(2)
    assert first + second == orders(0, 9)
    drive.restart()
    assert drive.emit(1, 1) == first
    assert drive.emit(2, 1) == second


def test_a_batch_with_a_changed_object_is_incomplete(folder: ObjectFolder, place: str) -> None:
    folder.write("1.jsonl", lines(orders(0, 5)))
    spout = ObjectBatches(place, type=Order, bounds=Bounds(records=3), shares=1)
    drive = Drive(spout)
    drive.emit(1)
    folder.write("1.jsonl", lines(orders(1, 6)))
    drive.restart()
    with pytest.raises(IncompleteBatch, match="changed"):
        drive.emit(1, 1)
    folder.delete("1.jsonl")
    with pytest.raises(IncompleteBatch, match="removed"):
        drive.emit(1, 2)


@pytest.mark.parametrize("ends", [False, True])
def test_an_object_that_is_removed_before_it_is_read_is_left_out(
    folder: ObjectFolder, place: str, ends: bool
) -> None:
    for number in range(4):
        folder.write(f"{number}.jsonl", lines(orders(number, number + 1)))
    spout = ObjectBatches(place, type=Order, shares=1, ends=ends, bounds=Bounds(records=1))
    drive = Drive(spout)
    assert drive.batch(1) == orders(0, 1)
    folder.delete("1.jsonl")
    folder.delete("3.jsonl")
    assert drive.batch(2) == orders(2, 3)
    assert drive.batch(3) == []
    if ends:
        assert drive.is_last(3)
    else:
        folder.write("3.jsonl", lines(orders(3, 4)))
        drive.clock.advance(2.0)
        assert drive.batch(4) == orders(3, 4)


def test_a_batch_is_bounded_in_bytes(folder: ObjectFolder, place: str) -> None:
    folder.write("1.jsonl", lines(orders(0, 10)))
    bounds = Bounds(bytes=2 * len(lines(orders(0, 1))) + 1)
    drive = Drive(ObjectBatches(place, type=Order, shares=1, bounds=bounds))
    order_batches = [drive.batch(number) for number in range(1, 6)]
    assert [*chain(*order_batches)] == orders(0, 10)
    assert max(map(len, order_batches)) <= 3


def test_objects_that_appear_later_are_read_in_the_order_of_their_names(
    folder: ObjectFolder, place: str
) -> None:
    spout = ObjectBatches(place, type=Order, shares=1)
    assert spout.partitions() == ["0"]
    drive = Drive(spout)
    assert drive.emit(1) == []
    folder.write("2.jsonl", lines(orders(0, 2)))
    drive.clock.advance(2.0)
    assert drive.emit(2) == orders(0, 2)
    folder.write("1.jsonl", lines(orders(8, 9)))  # sorted before the last object: left out
    folder.write("3.jsonl", lines(orders(2, 4)))
    drive.clock.advance(2.0)
    assert drive.emit(3) == orders(2, 4)


@pytest.mark.parametrize("data", [b'{"id": 1}\n{', b'{"day": "2026-01-01"}', b"\xff", b"[5]"])
def test_an_object_that_cannot_be_read_is_named(
    folder: ObjectFolder, place: str, data: bytes
) -> None:
    folder.write("1.jsonl", data)
    drive = Drive(ObjectBatches(place, type=Order, shares=1))
    with pytest.raises(IncompleteBatch, match=r"1\.jsonl, line \d cannot be read"):
        drive.emit(1)
    folder.write("1.jsonl", lines(orders(0, 3)))  # corrected
    drive.restart()
    assert drive.emit(1, 1) == orders(0, 3)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'[[1, "2026-01-01"]]', r"line 2 cannot be read: Order\[0\]"),
        (b'[1, "2026-01-01"]', r"line 2 cannot be read: Order\[0\]"),
        (b'[{"id": 1, "day": "2026-01-01"}, null]', r"line 2 cannot be read: Order\[1\]"),
        (b'{"id": "1", "day": "2026-01-01"}', r"line 2 cannot be read: Order\.id: '1' is no int"),
        (b'{"id": NaN, "day": "2026-01-01"}', "line 2 cannot be read: JSON is malformed"),
        (b'{"id": 1e400, "day": "2026-01-01"}', r"line 2 cannot be read: .*\.id"),
    ],
)
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: bytes, expected: str) -> None:
    (tmp_path / "1.jsonl").write_bytes(b"\n" + line + b"\n")
    with pytest.raises(IncompleteBatch, match=expected):
        Drive(ObjectBatches(tmp_path, type=Order, shares=1)).emit(1)


def test_an_array_of_objects_in_a_line_is_several_records(tmp_path: Path) -> None:
    both = b'[{"id": 1, "day": "2026-01-01"}, {"id": 2, "day": "2026-01-02"}]'
    (tmp_path / "1.jsonl").write_bytes(both + b"\r\n[]\n" + both)
    records = Drive(ObjectBatches(tmp_path, type=Order, shares=1)).emit(1)
    assert [order.id for order in records] == [1, 2, 1, 2]


def test_wrong_declarations_are_refused_and_secrets_are_not_shown(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="format"):
        ObjectFiles(tmp_path, format="csv")
    with pytest.raises(ConfigError, match="is not a folder"):
        ObjectBatches("ftp://host/x", type=Order, ends=True)
    with pytest.raises(SourceError, match=r"has no JSON lines"):
        ObjectBatches(tmp_path, type=Order, ends=True)
    with pytest.raises(RecordMismatch):
        ObjectBatches(tmp_path, type=dict)
    folder = ObjectFolder(f"s3://anybody:{SECRET}@bucket/x?region=y", "test")
    assert str(folder) == "s3://anybody:•••@bucket/x"


def test_a_wrong_bucket_is_an_error_without_secrets(s3: S3Server) -> None:
    with pytest.raises(StoreError) as refused:
        ObjectFolder(s3.url("x").replace(s3.bucket, "nowhere"), "test").write("a", b"")
    assert not isinstance(refused.value, StoreUnreachable)
    assert SECRET not in str(refused.value)


REFUSALS = {
    "AccessDenied": 403,
    "InvalidAccessKeyId": 403,
    "SignatureDoesNotMatch": 403,
    "ExpiredToken": 400,
    "NoSuchBucket": 404,
    "PermanentRedirect": 301,
    "InvalidRequest": 400,
}


@pytest.mark.parametrize("code", REFUSALS)
def test_what_the_store_refuses_concerns_every_record(code: str) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
            self.send_response(REFUSALS[code])
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.wfile.write(body)

        do_POST = do_GET = do_HEAD = do_PUT  # noqa: N815

        def log_message(self, *_: Any) -> None: ...

    with served(Refusing) as server:
        place = server.removeprefix("http://")
        where = f"endpoint_override={place}&scheme=http&region=us-east-1"
        with pytest.raises(StoreError, match=r"refuses that|cannot be used") as refused:
            ObjectFolder(f"s3://a:{SECRET}@bucket/x?{where}", "test").write("a", b"x")
    assert is_unavailable(refused.value)


def test_a_folder_that_cannot_be_written_concerns_every_record(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError) as refused:
        ObjectFolder(tmp_path / "file/x", "test").write("a", b"x")
    assert is_unavailable(refused.value)


@pytest.mark.long
def test_an_unavailable_store_is_an_outage() -> None:
    with s3_server() as server:
        folder = ObjectFolder(server.url("x"), "test")
        server.kill()
        try:
            with pytest.raises(StoreUnreachable, match="NETWORK_CONNECTION"):
                folder.read("a")
        finally:
            server.start()


# ---- writing ------------------------------------------------------------------------------------


def contents(folder: ObjectFolder) -> dict[str, list[int]]:
    """Object name → the ids in it."""
    ids = {}
    for name in folder.names():
        data = folder.read(name)
        assert data is not None
        rows = (
            parquet.read_table(pa.BufferReader(data)).to_pylist()
            if name.endswith(".parquet")
            else [json.loads(line) for line in data.splitlines()]
        )
        ids[name] = [row["id"] for row in rows]
    return ids


def writer(place: str, index: int = 0, tasks: int = 1) -> Any:
    """The writing operator of one task."""
    operator = _Writer(ObjectFolder(place, "test"), "jsonl", Schema.of(Order))
    operator.prepare(Context("t", "out", index, index, tasks))
    return operator


def write(operator: Any, attempt: Attempt, records: list[Order]) -> None:
    batch = operator.start(attempt)
    operator.process(batch, 0, records, lambda _: None)
    operator.finish(batch, attempt, lambda _: None)


FIRST = "batch=000000000001/part-0000.jsonl"


def test_a_batch_that_is_repeated_replaces_its_objects(folder: ObjectFolder, place: str) -> None:
    operator = writer(place)
    write(operator, Attempt(1, 0, 1), orders(0, 3))
    assert contents(folder) == {FIRST: [0, 1, 2]}
    write(operator, Attempt(1, 1, 1), orders(1, 5))
    assert contents(folder) == {FIRST: [1, 2, 3, 4]}
    write(operator, Attempt(1, 2, 2), [])
    assert contents(folder) == {}
    write(operator, Attempt(2, 0, 2), [])
    assert contents(folder) == {}


def test_a_replay_with_fewer_tasks_removes_the_objects_of_the_others(
    folder: ObjectFolder, place: str
) -> None:
    for index in range(3):
        write(writer(place, index, 3), Attempt(1, 0, 1), orders(index, index + 1))
    assert len(contents(folder)) == 3
    write(writer(place), Attempt(1, 1, 2), orders(0, 3))
    assert contents(folder) == {FIRST: [0, 1, 2]}


def test_objects_of_other_batches_are_not_replaced(folder: ObjectFolder, place: str) -> None:
    write(writer(place), Attempt(1, 0, 1), orders(0, 3))
    for records, attempt in ((orders(5, 6), 0), (orders(5, 6), 1), ([], 0), ([], 2)):
        with pytest.raises(StateMismatch, match="Give an empty folder"):
            write(writer(place), Attempt(1, attempt, 1), records)
        assert contents(folder) == {FIRST: [0, 1, 2]}
    folder.delete(FIRST)
    for attempt in (3, 4):
        write(writer(place), Attempt(1, attempt, 2), orders(5, 6))
        assert contents(folder) == {FIRST: [5]}


def copy_topology(source: str, target: str, store: Any, **options: Any) -> Topology:
    """A topology that copies all orders, three in a batch."""
    topology = Topology("copy", workers=1)
    spout = ObjectBatches(source, type=Order, bounds=Bounds(records=3), shares=2, ends=True)
    rows = batches(topology, "in", spout, store=store)
    rows.filter(lambda order: order.id >= 0).apply(ObjectFiles(target, **options))
    return topology


def test_a_program_with_a_new_store_replaces_no_object_in_any_attempt(tmp_path: Path) -> None:
    source, target = ObjectFolder(tmp_path / "in", "test"), ObjectFolder(tmp_path / "out", "test")
    source.write("1.jsonl", lines(orders(0, 3)))
    run_inline(copy_topology(str(tmp_path / "in"), str(tmp_path / "out"), InMemory()).graph())
    before = contents(target)
    source.write("1.jsonl", lines(orders(5, 8)))
    store = InMemory()
    for _ in range(2):  # the second run continues with a later attempt
        with pytest.raises(SunshowerError, match="Give an empty folder"):
            run_inline(copy_topology(str(tmp_path / "in"), str(tmp_path / "out"), store).graph())
        assert contents(target) == before


@pytest.mark.parametrize("run", [run_in_test, lambda topology: run_inline(topology.graph())])
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_topology_writes_each_row_once(
    folder: ObjectFolder, place: str, tmp_path: Path, kind: str, run: Callable[[Topology], Any]
) -> None:
    for number in range(4):
        folder.write(f"in/{number}.jsonl", lines(orders(number * 5, number * 5 + 5)))
    source, target = subfolder(place, "in"), subfolder(place, "out")
    run(copy_topology(source, target, InMemory(), format=kind))
    objects = contents(ObjectFolder(target, "test"))
    assert sorted(chain(*objects.values())) == [*range(20)]
    assert all(name.endswith(kind) for name in objects)


def subfolder(place: str, folder: str) -> str:
    path, mark, query = place.partition("?")
    return f"{path}/{folder}{mark}{query}"


def test_rows_without_field_names_have_those_of_their_stream(
    folder: ObjectFolder, place: str
) -> None:
    topology = Topology("count")
    spout = FixedBatchSpout(orders(0, 6), 3, type=Order)
    rows = batches(topology, "in", spout, store=InMemory())
    rows.group_by("day").aggregate(count()).apply(ObjectFiles(place))
    run_in_test(topology)
    data = [folder.read(name) for name in folder.names()]
    assert data == [b'{"day": "2026-01-02", "count": 3}\n'] * 2


def test_a_process_that_dies_between_batches_writes_no_row_twice(
    folder: ObjectFolder, place: str, tmp_path: Path
) -> None:
    folder.write("in/1.jsonl", lines(orders(0, 30)))
    source, target = subfolder(place, "in"), subfolder(place, "out")
    store, out = InSqlite(tmp_path / "batches.db"), ObjectFolder(target, "test")
    for life in (1, 2, 3):  # the first two are abandoned in the middle, the last one ends
        run = Run(copy_topology(source, target, store), life)
        run.until(lambda: len(out.names()) > 3 * life or run.core.finished)  # noqa: B023
    run.until(lambda: run.core.finished)
    assert sorted(chain(*contents(out).values())) == [*range(30)]


@pytest.mark.long
def test_a_store_that_is_killed_under_load_loses_nothing() -> None:
    with s3_server() as server:
        folder = ObjectFolder(server.url("in"), "test")
        for number in range(4):
            folder.write(f"{number}.jsonl", lines(orders(number * 10, number * 10 + 10)))
        out = ObjectFolder(server.url("out"), "test")
        with running(copy_topology(server.url("in"), server.url("out"), InMemory())) as run:
            run.until(lambda: len(out.names()) > 2)
            server.kill()
            run.until_waiting()
            server.start()
            run.until(lambda: run.core.finished)
        assert sorted(chain(*contents(out).values())) == [*range(40)]
