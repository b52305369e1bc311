"""Files of records: their formats, bad lines, files that grow, kills, and wrong declarations."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO, StringIO
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple, TypedDict

import attrs
import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from pydantic import BaseModel

from sunshower import Bolt, Context, Line, Retry, Spout, Topology, count, run_inline
from sunshower.clock import ManualClock
from sunshower.connectors import FollowedFiles, RecordFiles
from sunshower.connectors.file_formats import Block, Misread, RecordReaders, records_of
from sunshower.errors import ClusterError, SourceError, SunshowerError, TopologyFailed
from sunshower.runtime.events.event_log import What
from sunshower.simulation.cluster import SimCluster
from sunshower.state import MemoryState
from sunshower.topologies.logs import Unreadable
from sunshower.trident import InMemory, InSqlite, PlainSpout, batches
from tests.seeds import seeds
from tests.topologies.operators.kinds import Kept


class Order(NamedTuple):
    number: int
    item: str
    price: Decimal
    at: datetime
    shop: str | None = None
    weight: float | None = None


BOM = b"\xef\xbb\xbf"


def order(number: int) -> Order:
    shop = (None, "north", "south")[number % 3]
    at = datetime(2024, 3, 1, number % 24, tzinfo=UTC)
    weight = number / 4 if number % 2 else None
    return Order(number, f'tea; "no. {number}",\n', Decimal(number) / 8, at, shop, weight)


ORDERS = [order(number) for number in range(30)]
TEXTS = [
    [row.number, row.item, row.price, row.at.isoformat(), row.shop or "", row.weight or ""]
    for row in ORDERS
]


def in_csv(delimiter: str, end: str = "\n") -> bytes:
    file = StringIO(newline="")
    writer = csv.writer(file, delimiter=delimiter, lineterminator=end)
    writer.writerow(Order._fields)
    writer.writerows(TEXTS)
    return file.getvalue().encode()


def in_json() -> bytes:
    rows = [row._asdict() | {"price": str(row.price), "at": row.at.isoformat()} for row in ORDERS]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def in_parquet() -> bytes:
    file = BytesIO()
    table = pa.Table.from_pylist([row._asdict() for row in ORDERS])
    parquet.write_table(table, file, row_group_size=7)
    return file.getvalue()


FORMS = {
    "a.jsonl": in_json(),
    "a.json": BOM + in_json(),
    "a.csv": in_csv(","),
    "b.csv": BOM + in_csv(";", "\r\n"),
    "a.tsv": in_csv("\t"),
    "a.parquet": in_parquet(),
    "a.jsonl.gz": gzip.compress(in_json()),
    "a.csv.gz": gzip.compress(in_csv("|")),
    "a.parquet.gz": gzip.compress(in_parquet()),
}


def read(spout: Spout[Any], parallelism: int = 1, retry: Retry | None = None) -> dict[str, Any]:
    """The records of a spout, and its dead letters."""
    topology = Topology("files")
    stream = topology.spout("in", spout, parallelism, retry=retry)
    stream.shuffle().bolt("kept", Kept)
    if retry is not None:
        stream.stream("dead_letters").shuffle().bolt("letters", Kept)
    results = run_inline(topology.graph(), clock=ManualClock()).results
    return {name: sorted(*results[name]) for name in ("kept", "letters") if name in results}


def spouts(*patterns: Path, type: Any) -> list[Spout[Any]]:
    return [
        RecordFiles(*patterns, type=type),
        FollowedFiles(*patterns, type=type, positions=InMemory(), ends=True),
    ]


# ---- formats ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMS)
def test_each_format_has_the_same_records(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(FORMS[name])
    for spout in spouts(tmp_path / "*", type=Order):
        assert read(spout)["kept"] == sorted(map(tuple, ORDERS))


@pytest.mark.parametrize("name", FORMS)
def test_reading_continues_at_the_position_of_each_record(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(FORMS[name])
    whole = entries(RecordReaders(Order).blocks(str(path)))
    assert [value for _, _, value in whole] == ORDERS
    for place, (first, end, _) in enumerate(whole):
        assert entries(RecordReaders(Order).blocks(str(path), first)) == whole[place:]
        assert entries(RecordReaders(Order).blocks(str(path), end)) == whole[place + 1 :]


def entries(blocks: Iterable[Block]) -> list[tuple[int, int, Any]]:
    """Where each record begins and ends, and its value."""
    return [
        entry
        for firsts, end, values in blocks
        if firsts
        for entry in zip(firsts, [*firsts, end][1:], values, strict=True)
    ]


class Pair(NamedTuple):
    a: str
    b: str


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
plain_texts = st.text(st.sampled_from('"" ab\'5'), max_size=6)


@given(st.lists(st.tuples(texts, texts)), st.sampled_from(",;\t|"), st.sampled_from(["\n", "\r\n"]))
def test_what_csv_writes_is_read(rows: list[tuple[str, str]], mark: str, end: str) -> None:
    file = StringIO(newline="")
    writer = csv.writer(file, delimiter=mark, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerows([("a", "b"), *rows])
    blocks = RecordReaders(Pair).of_file("x.csv", BytesIO(file.getvalue().encode()))
    assert records_of(blocks) == rows


@given(st.binary(max_size=60), st.sampled_from(["a.csv", "a.jsonl"]))
def test_any_bytes_are_records_or_misread_and_none_is_passed_over(data: bytes, name: str) -> None:
    start = 4 if name == "a.csv" else 0  # behind the names of the columns
    data = b"a,b\n"[:start] + data
    at = start
    for first, end, value in entries(RecordReaders(Pair).of_file(name, BytesIO(data))):
        assert at <= first < end
        assert not data[at:first].removeprefix(BOM).strip()
        assert isinstance(value, Pair | Misread | list)
        at = end
    assert not data[at:].removeprefix(BOM).strip()


def test_a_quote_without_an_end_costs_its_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('a,b\n1,"x\n2,y\n3,z\n')
    first, *others = records_of(RecordReaders(Pair).blocks(str(path)))
    assert isinstance(first, Misread)
    assert (first.record.number, first.record.value) == (2, b'1,"x')
    assert others == [("2", "y"), ("3", "z")]


def test_a_field_with_a_default_needs_no_column_and_other_columns_are_left(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("more,at,price,item,number\n1,2024-01-01T00:00Z,2,tea,3\n")
    (row,) = read(RecordFiles(tmp_path / "a.csv", type=Order))["kept"]
    assert row == (3, "tea", Decimal(2), datetime(2024, 1, 1, tzinfo=UTC), None, None)


def test_an_array_of_json_is_one_message_of_several_records(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('[{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]\n\n')
    for spout in spouts(tmp_path / "a.jsonl", type=Pair):
        assert read(spout)["kept"] == [("1", "2"), ("3", "4")]


def test_lines_of_any_file_and_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes("ä\r\n\nb".encode("latin-1"))
    spout = RecordFiles(tmp_path / "a.log", type=Line, encoding="latin-1")
    assert read(spout)["kept"] == [("",), ("b",), ("ä",)]


def test_tasks_share_the_files(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}.csv").write_text(f"a,b\n{number},x\n")
    for spout in spouts(tmp_path / "*.csv", type=Pair):
        assert read(spout, 3)["kept"] == [(str(number), "x") for number in range(5)]


# ---- records that cannot be read ----------------------------------------------------------------

BAD = {
    "a.csv": "a,b\n1,2\n3\n5,6\n",
    "a.jsonl": '{"a": "1", "b": "2"}\n{"a": 3}\n{"a": "5", "b": "6"}\n',
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_becomes_a_dead_letter_at_once(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(BAD[name])
    for spout in spouts(tmp_path / name, type=Pair):
        results = read(spout, retry=Retry(dead_letters=True))
        assert results["kept"] == [("1", "2"), ("5", "6")]
        (letter,) = results["letters"]
        assert str(tmp_path / name) in str(letter)
        number = 2 if name == "a.jsonl" else 3
        assert f"(line {number} of " in str(letter)
        assert BAD[name].splitlines()[number - 1] in str(letter).replace('\\"', '"')


def test_a_bad_row_of_parquet_becomes_a_dead_letter(tmp_path: Path) -> None:
    table = pa.table({"a": ["1", None, "3"], "b": ["x", "y", "z"]})
    parquet.write_table(table, tmp_path / "a.parquet")
    for spout in spouts(tmp_path / "a.parquet", type=Pair):
        results = read(spout, retry=Retry(dead_letters=True))
        assert results["kept"] == [("1", "x"), ("3", "z")]
        assert "Pair.a: None is no str (row 2 of " in str(results["letters"])


def test_without_dead_letters_a_bad_line_ends_the_topology(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(BAD["a.csv"])
    for spout in spouts(tmp_path / "a.csv", type=Pair):
        with pytest.raises(TopologyFailed, match=r"it has 1 values.* \(line 3 of .*a.csv"):
            read(spout)


def test_a_bad_line_fails_its_batch(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(BAD["a.csv"])
    topology = Topology("files")
    spout = PlainSpout(RecordFiles(tmp_path / "a.csv", type=Pair), repeats=True)
    rows = batches(topology, "in", spout, store=InMemory())
    rows.group_by("a").aggregate(count(), state=MemoryState())
    with pytest.raises(SunshowerError, match=r"it has 1 values.* \(line 3 of .*a.csv"):
        run_inline(topology.graph(), clock=ManualClock())


# ---- files that appear and grow -----------------------------------------------------------------


class Writer(Bolt[Any, None]):
    def prepare(self, context: Context) -> None:
        self.context = context

    def process(self, row: Pair) -> None:
        self.context.wrote(row.a, row.b)


class Folder:
    """Files that grow by pieces of lines, and by whole files of other formats."""

    def __init__(self, path: Path, draw: Random) -> None:
        self.path, self.draw = path, draw
        self.written = list[str]()
        self.open: dict[Path, bytes] = {}  # what is still to be appended

    def step(self) -> None:
        for path, rest in self.open.items():
            piece = self.draw.randint(0, len(rest))
            with path.open("ab") as file:
                file.write(rest[:piece])
            self.open[path] = rest[piece:]
        if self.draw.random() < 0.7:
            self.begin()

    def begin(self) -> None:
        first = len(self.written)
        rows = [(str(first + n), "x\ny" * n) for n in range(self.draw.randint(0, 9))]
        self.written += [key for key, _ in rows]
        suffix = self.draw.choice((".csv", ".jsonl", ".parquet", ".csv.gz"))
        name = f"{self.draw.randint(0, 99):02}-{first}-{len(self.open)}{suffix}"
        file = StringIO(newline="")
        csv.writer(file).writerows([("a", "b"), *rows])
        text = file.getvalue().encode()
        if suffix == ".jsonl":
            lines = [json.dumps({"a": a, "b": b}) for a, b in rows]
            text = "".join(f"{line}\n" for line in lines).encode()
        if suffix in (".csv", ".jsonl"):
            self.open[self.path / name] = text
            return
        hidden = self.path / f".{name}"
        if suffix == ".parquet":
            columns = {"a": [a for a, _ in rows], "b": [b for _, b in rows]}
            parquet.write_table(pa.table(columns, pa.schema({"a": "str", "b": "str"})), hidden)
        else:
            hidden.write_bytes(gzip.compress(text))
        hidden.rename(self.path / name)

    def end(self) -> None:
        for path, rest in self.open.items():
            with path.open("ab") as file:
                file.write(rest)
        self.open.clear()


@seeds(300)
def test_no_record_is_missing_in_several_runs_with_kills(seed: int, tmp_path: Path) -> None:
    """Without kills, each record is read once."""
    draw = Random(seed)
    folder, positions, rows = Folder(tmp_path, draw), InMemory(), Counter[str]()
    kills = draw.random() < 0.7
    for run_number in range(4):
        is_last = run_number == 3
        topology = Topology("files", workers=2, message_timeout_s=30)
        spout = FollowedFiles(tmp_path / "*", type=Pair, positions=positions, ends=is_last)
        tasks = draw.randint(1, 3)  # another number in each run
        topology.spout("in", spout, tasks).shuffle().bolt("writer", Writer, parallelism=2)
        if is_last:
            folder.end()
        with SimCluster(seed + run_number, check=seed % 10 == 0) as cluster:
            run = cluster.submit(topology.graph(), sample=1)
            for _ in range(0 if is_last else draw.randint(1, 6)):
                folder.step()
                run.wait(draw.choice((0.3, 1.0, 3.0)))
                if kills and draw.random() < 0.3:
                    with suppress(ClusterError):  # it is dead already
                        run.kill_worker(draw.randint(0, 1))
            if is_last:
                assert run.wait(300.0), f"seed {seed}: it does not end"
            else:
                run.drain()
                assert run.wait(300.0), f"seed {seed}: it does not drain"
            rows.update(entry.detail[0] for entry in run.history() if entry.what is What.WROTE)
    assert rows.keys() == {*folder.written}, f"seed {seed}"
    assert kills or {*rows.values()} <= {1}, f"seed {seed}: {rows}"


def test_the_next_run_continues(tmp_path: Path) -> None:
    positions = InSqlite(tmp_path / "positions.db")
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,x\n2,")
    spout = FollowedFiles(path, type=Pair, positions=positions, ends=True)
    retry = Retry(dead_letters=True)
    assert read(spout, retry=retry)["kept"] == [("1", "x"), ("2", "")]
    assert read(spout, retry=retry)["kept"] == []
    with path.open("a") as file:
        file.write("\n3,z\n")
    assert read(spout, retry=retry)["kept"] == [("3", "z")]


def test_a_file_that_became_shorter_is_refused(tmp_path: Path) -> None:
    positions, path = InMemory(), tmp_path / "a.csv"
    path.write_text("a,b\n1,x\n")
    spout = FollowedFiles(path, type=Pair, positions=positions, ends=True)
    read(spout)
    path.write_text("a,b\n")
    with pytest.raises(SunshowerError, match=r"has 4 bytes, and 8 were read: .*Rename it"):
        read(spout)
    path.rename(tmp_path / "b.csv").write_text("a,b\n2,y\n")
    spout = FollowedFiles(tmp_path / "*", type=Pair, positions=positions, ends=True)
    assert read(spout)["kept"] == [("2", "y")]


def test_files_of_earlier_patterns_are_not_read_until_they_are_named_again(tmp_path: Path) -> None:
    positions, first = InMemory(), tmp_path / "a.csv"
    expected = {"a.csv": [("1", "x")], "b.csv": [("2", "y")], "*": [("3", "z")]}
    (tmp_path / "b.csv").write_text("a,b\n2,y\n")
    first.write_text("a,b\n1,x\n")
    for pattern, rows in expected.items():
        spout = FollowedFiles(tmp_path / pattern, type=Pair, positions=positions, ends=True)
        assert read(spout)["kept"] == rows
        if pattern == "a.csv":
            with first.open("a") as file:
                file.write("3,z\n")


# ---- wrong declarations and files ---------------------------------------------------------------


def test_wrong_declarations(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    with pytest.raises(SourceError, match=r"a\.txt: the suffix says .* or type=Line"):
        RecordFiles(tmp_path / "a.txt", type=Pair)
    with pytest.raises(SourceError, match=r"\*\.txt: the suffix says"):
        FollowedFiles(tmp_path / "*.txt", type=Pair, positions=InMemory())
    with pytest.raises(SourceError, match=r"no file matches"):
        RecordFiles(tmp_path / "*.csv", type=Pair)
    with pytest.raises(SourceError, match=r"RecordFiles: .* is a folder; give a glob .*/\*'"):
        RecordFiles(tmp_path, type=Pair)
    with pytest.raises(SourceError, match=r"FollowedFiles: .* is a folder; give a glob .*/\*'"):
        FollowedFiles(tmp_path, type=Pair, positions=InMemory())
    with pytest.raises(SourceError, match=r"names no file"):
        FollowedFiles(type=Pair, positions=InMemory())
    with pytest.raises(SunshowerError, match=r'positions is .*InSqlite\("positions.db"\)'):
        FollowedFiles("a.csv", type=Pair, positions="positions.db")  # type: ignore[arg-type]
    with pytest.raises(SunshowerError, match=r"is not a record type"):
        RecordFiles(tmp_path / "a.csv", type=int)
    with pytest.raises(SourceError, match="cannot be separated by their bytes"):
        RecordFiles(tmp_path / "a.txt", type=Line, encoding="utf-16")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"a,c\n1,2\n", "its first line has no column 'b'; it has a, c"),
        ("a.csv", b"a,b,b\n1,2,3\n", "its first line has the column 'b' twice"),
        ("a.parquet", b"no Parquet", "correct the file, or remove it"),
        ("a.csv.gz", b"no gzip", "cannot be read: Not a gzipped file.*; correct the file"),
        ("a.csv", "a,b\n1,2\n".encode("utf-16"), "a.csv is in UTF-16: convert it to UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    for spout in spouts(tmp_path / name, type=Pair):
        with pytest.raises(SunshowerError, match=message):
            read(spout)


# ---- other record types -------------------------------------------------------------------------


class Model(BaseModel):
    number: int
    price: Decimal
    shop: str | None = None


class Packed(msgspec.Struct, rename="camel", frozen=True):
    number: int
    price: Decimal
    shop: str | None = None


@attrs.frozen
class Defined:
    number: int
    price: Decimal
    shop: str | None = None


class Keyed(TypedDict):
    number: int
    price: Decimal
    shop: str | None


@pytest.mark.parametrize("kind", [Model, Packed, Defined, Keyed])
def test_each_record_type_is_read_of_each_format(tmp_path: Path, kind: Any) -> None:
    (tmp_path / "1.csv").write_text("number,price,shop\n1,2.50,\n2,3,a\nx,1,b\n")
    (tmp_path / "2.jsonl").write_text('{"number": 3, "price": "4.5", "shop": "b"}\n')
    table = pa.table({"number": [4], "price": [Decimal("5.5")], "shop": ["c"]})
    parquet.write_table(table, tmp_path / "3.parquet")
    wanted = [(1, "2.50", None), (2, "3", "a"), (3, "4.5", "b"), (4, "5.5", "c")]
    records = [kind(number=n, price=Decimal(price), shop=shop) for n, price, shop in wanted]
    blocks = [RecordReaders(kind).blocks(str(path)) for path in sorted(tmp_path.iterdir())]
    *values, bad, third, fourth = [value for block in blocks for value in records_of(block)]
    assert [*values, third, fourth] == records
    assert "number" in bad.reason


@given(st.lists(st.tuples(plain_texts, plain_texts), max_size=9), st.sampled_from(",;\t|"))
def test_quotes_within_a_value_without_quotes_are_characters(
    rows: list[tuple[str, str]], mark: str
) -> None:
    lines = [mark.join(("a", "b")), *(mark.join((f"x{a}", f"x{b}")) for a, b in rows)]
    blocks = RecordReaders(Pair).of_file("x.csv", BytesIO("\n".join(lines).encode()))
    assert records_of(blocks) == [(f"x{a}", f"x{b}") for a, b in rows]


def test_no_row_is_lost_to_a_carriage_return() -> None:
    wrong, right = records_of(RecordReaders(Pair).of_file("x.csv", BytesIO(b"a,b\n1,2\r3,4\n5,6")))
    assert isinstance(wrong, Misread)
    assert "carriage return" in wrong.reason
    assert right == ("5", "6")
    with pytest.raises(SourceError, match="carriage returns"):
        records_of(RecordReaders(Pair).of_file("x.csv", BytesIO(b"a,b\r1,2\r")))


def test_a_long_value_and_columns_without_a_name() -> None:
    data = b"\xef\xbb\xbf\na,b,,\n" + b"x" * 200_000 + b",2,,\n"
    (row,) = records_of(RecordReaders(Pair).of_file("x.csv", BytesIO(data)))
    assert row == ("x" * 200_000, "2")


class Limited(NamedTuple):
    a: str
    b: Annotated[int | None, "a note"] = 3


def test_an_empty_value_is_none_where_the_field_may_be_none() -> None:
    rows = records_of(RecordReaders(Limited).of_file("x.csv", BytesIO(b"a,b\nx,\ny,2\n")))
    assert rows == [("x", None), ("y", 2)]


def test_what_is_unreadable_has_the_content_of_its_letter() -> None:
    with pytest.raises(SourceError, match="field → value"):
        Unreadable(0, "a line", "why")  # type: ignore[arg-type]


def test_a_file_that_cannot_be_read_is_passed_over_when_it_was_removed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,c\n1,2\n")
    (tmp_path / "b.csv").write_text("a,b\n1,x\n")
    spout = FollowedFiles(tmp_path / "*.csv", type=Pair, positions=InMemory())
    spout.open(Context("files", "in", 0, 0, 1, clock=ManualClock()))
    polled = spout.poll(10)
    assert polled is not None
    assert polled.records == [("1", "x")]
    for _ in range(2):
        with pytest.raises(SourceError, match="no column 'b'"):
            spout.poll(10)
    assert not spout.has_read_first()
    (tmp_path / "a.csv").unlink()
    assert spout.poll(10) is not None
    assert spout.has_read_first()


@pytest.mark.parametrize("bad", ["bad.csv", "bad.txt"])
@pytest.mark.parametrize("ends", [False, True])
def test_new_files_and_lines_are_read_while_one_cannot_be(
    tmp_path: Path, bad: str, ends: bool
) -> None:
    (tmp_path / "c.csv").write_text("a,b\n1,x\n")
    (tmp_path / bad).write_text("a,c\n1,2\n")
    spout = FollowedFiles(tmp_path / "*", type=Pair, positions=InMemory(), ends=ends)
    clock = ManualClock()
    spout.open(Context("files", "in", 0, 0, 1, clock=clock))
    records: list[Any] = []

    def polls(count: int) -> None:
        for _ in range(count):
            clock.sleep(0.4)
            with suppress(SourceError):
                polled = spout.poll(10)
                assert polled is not None
                assert not polled.ended
                records.extend(polled.records)

    polls(9)
    assert records == [("1", "x")]
    assert spout.figures()["unreadable files"] == 1
    assert not spout.has_read_first()
    if not ends or bad == "bad.txt":  # whose listing is not complete
        with (tmp_path / "c.csv").open("a") as file:
            file.write("2,y\n")
        for name in ("a.csv", "d.csv"):
            (tmp_path / name).write_text(f"a,b\n3,{name}\n")
        polls(9)
        assert sorted(records) == [("1", "x"), ("2", "y"), ("3", "a.csv"), ("3", "d.csv")]
        with pytest.raises(SourceError, match=bad):
            spout.poll(10)
    (tmp_path / bad).unlink()
    clock.sleep(1.0)
    polled = spout.poll(10)
    assert polled is not None
    assert polled.ended is ends
    assert spout.has_read_first()
    assert spout.figures()["unreadable files"] == 0


@given(st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=4), st.data())
def test_files_that_cannot_be_read_do_not_hold_up_others_and_the_lag_is_that_of_all(
    contents: list[list[int]], data: st.DataObject
) -> None:
    broken = data.draw(st.sets(st.sampled_from(range(len(contents)))))
    with TemporaryDirectory() as folder:
        for number, numbers in enumerate(contents):
            head = "a,c\n" if number in broken else "a,b\n"
            rows = "".join(f"{n},{number}\n" for n in numbers)
            (Path(folder) / f"{number}.csv").write_text(head + rows)
        spout = FollowedFiles(Path(folder) / "*.csv", type=Pair, positions=InMemory())
        clock = ManualClock()
        spout.open(Context("files", "in", 0, 0, 1, clock=clock))
        records: list[Any] = []
        numbers_read: list[Any] = []
        good = [number for number in range(len(contents)) if number not in broken]
        total = sum(len(contents[number]) for number in good)
        with suppress(SourceError):
            while True:
                polled = spout.poll(data.draw(st.integers(1, 4)))
                assert polled is not None
                records += polled.records
                numbers_read.append(polled.numbers)
                if not broken and spout.has_read_first():
                    break
                if not len(polled.numbers) and not broken:
                    clock.sleep(1.0)
        assert sorted(records) == sorted((str(n), str(i)) for i in good for n in contents[i])
        assert spout.figures()["unreadable files"] == len(broken)
        if not broken:
            assert spout.figures()["lag"] == total
            spout.acked(np.concatenate(numbers_read))
            assert spout.figures()["lag"] == 0
