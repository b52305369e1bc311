"""PostgresTable on a real PostgreSQL: rows are written before the ack, and refused alone."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from psycopg import NotSupportedError, OperationalError
from psycopg.errors import FeatureNotSupported, UndefinedTable

from sunshower import Context, Records, Retry, Topology, count, sessions
from sunshower.connectors import PostgresTable
from sunshower.errors import ConfigError, RecordMismatch, StoreError, StoreUnreachable, UnknownField
from sunshower.records import Schema
from sunshower.runtime.events.health import WaitKind
from sunshower.testing import run
from tests.connectors.conftest import Drive
from tests.connectors.postgres_server import (
    SALES,
    Sale,
    Server,
    execute,
    postgres_server,
    sales,
)
from tests.kafka.stage import Seen, running

UNREACHABLE = "postgresql://nobody@127.0.0.1:9/none"


@pytest.fixture
def dsn(postgres: str) -> Iterator[str]:
    execute(postgres, SALES)
    yield postgres
    execute(postgres, "DROP TABLE sales")


def new_table(dsn: str, **options: Any) -> PostgresTable:
    bolt = PostgresTable(dsn, "sales", key="id", **options)
    bolt.check_input(Schema.of(Sale))
    return bolt


def stored_rows(dsn: str) -> list[tuple[Any, ...]]:
    return execute(dsn, "SELECT * FROM sales ORDER BY id")


def test_each_record_is_a_row_and_a_replay_changes_nothing(dsn: str) -> None:
    topology = Topology("shop")
    spout = topology.spout("sales", Records(sales(0, 300) + sales(100, 200), type=Sale))
    spout.fields("id").bolt("table", PostgresTable(dsn, "sales", key="id"), parallelism=2)
    done = run(topology)
    assert done.snapshot.component("sales").acked == 400
    assert stored_rows(dsn) == [tuple(sale) for sale in sales(0, 300)]


def test_the_last_record_of_a_key_is_stored(drive: Drive, dsn: str) -> None:
    driven = drive(new_table(dsn))
    driven.take(Sale(1, "old", 1.0), Sale(2, "other", 1.0), Sale(1, "new", 2.0))
    assert stored_rows(dsn) == [(1, "new", 2.0), (2, "other", 1.0)]
    driven.take(Sale(1, "newer", 3.0))
    assert stored_rows(dsn)[0] == (1, "newer", 3.0)
    assert len(driven.out.acked) == 4


def test_an_older_version_changes_nothing(drive: Drive, dsn: str) -> None:
    driven = drive(new_table(dsn, version="price"))
    driven.take(Sale(1, "second", 2.0))
    driven.take(Sale(1, "first", 1.0))
    assert stored_rows(dsn) == [(1, "second", 2.0)]
    driven.take(Sale(1, "third", 3.0))
    assert stored_rows(dsn) == [(1, "third", 3.0)]
    assert len(driven.out.acked) == 3


def two(_: Sale) -> int:
    return 2


def is_removed(sale: Sale) -> bool:
    return sale.item == "removed"


def test_a_record_removes_the_row_of_its_key_unless_that_is_newer(drive: Drive, dsn: str) -> None:
    driven = drive(new_table(dsn, version="price", removed=is_removed))
    driven.take(*(Sale(number, "sold", 2.0) for number in range(4)))
    driven.take(
        Sale(0, "removed", 1.0),
        Sale(1, "removed", 2.0),
        Sale(2, "removed", 3.0),
        Sale(2, "again", 4.0),
        Sale(3, "new", 3.0),
        Sale(3, "removed", 4.0),
        Sale(9, "removed", 1.0),  # there is none
    )
    assert stored_rows(dsn) == [(0, "sold", 2.0), (2, "again", 4.0)]
    assert len(driven.out.acked) == 11


def test_rows_whose_keys_only_the_database_compares_are_removed_too(
    drive: Drive, postgres: str
) -> None:
    execute(
        postgres,
        'CREATE TABLE words ("50%s" char(4) PRIMARY KEY, n int)',
        "INSERT INTO words VALUES ('a', 1), ('b', 1), ('c', 1)",
    )
    columns = {"50%s": "item", "n": two}
    table = PostgresTable(
        postgres, "words", key="50%s", columns=columns, removed=lambda sale: sale.price < 0
    )
    table.check_input(Schema.of(Sale))
    driven = drive(table)
    driven.take(Sale(1, "a ", -1), Sale(2, "b", 1), Sale(3, "b  ", -1), Sale(4, "d", 1))
    assert execute(postgres, "SELECT * FROM words ORDER BY 1") == [("c   ", 1), ("d   ", 2)]
    execute(postgres, "DROP TABLE words")


def test_a_table_that_takes_no_deletes_is_refused_at_the_start(drive: Drive, dsn: str) -> None:
    with pytest.raises(UnknownField):
        new_table(dsn, removed="gone")
    execute(dsn, "CREATE ROLE keeper LOGIN", "GRANT SELECT, INSERT, UPDATE ON sales TO keeper")
    keeper = re.sub("//[^@]*@", "//keeper@", dsn)
    try:
        drive(new_table(keeper))
        with pytest.raises(StoreError, match="permission denied"):
            drive(new_table(keeper, removed="item"))
    finally:
        execute(dsn, "DROP OWNED BY keeper", "DROP ROLE keeper")


def test_the_table_of_early_results_ends_with_the_final_ones(dsn: str) -> None:
    """Early results of sessions that have grown are taken back."""
    execute(
        dsn,
        'CREATE TABLE visits (item text, "window" float8, number int, n int,'
        ' PRIMARY KEY (item, "window"))',
    )
    topology = Topology("visits")
    times = [sale._replace(item="ab"[sale.id % 2], price=float(sale.id)) for sale in sales(0, 200)]
    spout = topology.spout("sales", Paced(times, type=Sale))
    visits = spout.group_by("item").window(
        sessions(gap=30, field="price", early=0.2),
        count(),
        fields=("item", "window", "kind", "number", "n"),
    )
    columns = {name: name for name in ("item", "window", "number", "n")}
    table = PostgresTable(
        dsn, "visits", key=["item", "window"], version="number", columns=columns, removed=is_taken
    )
    visits.fields("item", "window").bolt("table", table)
    run(topology)
    assert execute(dsn, 'SELECT item, "window", n FROM visits ORDER BY 1') == [
        ("a", 228.0, 100),
        ("b", 229.0, 100),
    ]
    execute(dsn, "DROP TABLE visits")


class Paced(Records[Sale]):
    """Its records, one each tenth of a second."""

    def open(self, context: Context) -> None:
        super().open(context)
        self.clock = context.clock

    def records(self) -> Iterator[Any]:
        begun_s = self.clock.now()
        for number, sale in enumerate(super().records()):
            while self.clock.now() < begun_s + number / 10:
                yield None
            yield sale


def is_taken(visit: Any) -> bool:
    return bool(visit[2] == "removed")


def test_a_table_with_only_key_columns_takes_each_row_once(drive: Drive, postgres: str) -> None:
    execute(
        postgres, 'CREATE SCHEMA "my shop"', 'CREATE TABLE "my shop"."50%" ("%s" text PRIMARY KEY)'
    )
    names = {"%s": lambda record: record.item}
    driven = drive(PostgresTable(postgres, "my shop.50%", key="%s", columns=names))
    driven.take(*sales(0, 14))
    assert execute(postgres, 'SELECT count(*) FROM "my shop"."50%"') == [(7,)]
    assert len(driven.out.acked) == 14


class Color(Enum):
    RED = "red"


@dataclass(frozen=True)
class Everything:
    id: UUID
    at: datetime
    day: date
    price: Decimal
    color: Color
    tags: tuple[str, ...]
    parts: dict[str, Any]
    bytes: bytes
    nothing: int | None


def test_every_type_has_a_column(postgres: str) -> None:
    execute(
        postgres,
        "CREATE TABLE everything (id uuid PRIMARY KEY, at timestamptz, day date, price numeric,"
        " color text, tags text[], parts jsonb, bytes bytea, nothing integer)",
    )
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    parts = {"list": [1, 2], "at": at, "null": None}
    id = UUID(int=7)
    everything = Everything(
        id, at, at.date(), Decimal("1.50"), Color.RED, ("a", "b"), parts, b"\0x", None
    )
    bolt = PostgresTable(postgres, "everything", key="id")
    topology = Topology("t")
    topology.spout("in", Records([everything], type=Everything)).shuffle().bolt("out", bolt)
    run(topology)
    (row,) = execute(postgres, "SELECT * FROM everything")
    decoded = {"list": [1, 2], "at": "2026-01-02T03:04:05+00:00", "null": None}
    day = date(2026, 1, 2)
    assert row == (id, at, day, Decimal("1.50"), "red", ["a", "b"], decoded, b"\0x", None)


def test_a_row_that_the_database_refuses_fails_alone(drive: Drive, dsn: str) -> None:
    execute(dsn, "ALTER TABLE sales ADD CHECK (price < 1000)")
    bad = [
        Sale(10, None, 1.0),  # type: ignore[arg-type]
        Sale(250, "dear", 5000.0),
        Sale(499, "\0", 1.0),
        Sale(600, "typed", "much"),  # type: ignore[arg-type]
        Sale(2**40, "large", 1.0),
        Sale(700, object(), 1.0),  # type: ignore[arg-type]
    ]
    good = sales(0, 10) + sales(11, 250) + sales(251, 499) + sales(500, 600)
    driven = drive(new_table(dsn))
    driven.take(*good[:100], *bad[:3], *good[100:], *bad[3:])
    assert stored_rows(dsn) == [tuple(record) for record in good]
    assert sorted(driven.out.acked) == good
    assert {id(record) for record, _ in driven.out.failed} == {id(record) for record in bad}
    reasons = {record.id: str(reason) for record, reason in driven.out.failed}
    assert "table 'sales' refuses" in reasons[10]
    assert "not-null" in reasons[10]
    assert "check constraint" in reasons[250]


def test_an_error_that_only_some_rows_cause_fails_them_alone_whatever_its_class_is(
    drive: Drive, dsn: str
) -> None:
    execute(
        dsn,
        "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN IF NEW.id = 7 THEN PERFORM 1 FROM nothing; END IF; RETURN NEW; END $$",
        "CREATE TRIGGER look BEFORE INSERT ON sales FOR EACH ROW EXECUTE FUNCTION look()",
    )
    infinite = Sale(Decimal("Infinity"), "whole", 1.0)  # type: ignore[arg-type]
    driven = drive(new_table(dsn))
    driven.take(*sales(0, 20), infinite)
    assert len(stored_rows(dsn)) == len(driven.out.acked) == 19
    assert {record.id for record, _ in driven.out.failed} == {7, infinite.id}
    # Not errors of ours: if a trigger refuses each row, the task is in doubt.
    assert {type(reason) for _, reason in driven.out.failed} == {
        UndefinedTable,
        FeatureNotSupported,
    }
    execute(dsn, "DROP FUNCTION look CASCADE")


def test_a_row_that_cannot_be_sent_fails_alone(drive: Drive, dsn: str) -> None:
    driven = drive(new_table(dsn))
    driven.take(*sales(0, 7), Sale(7, "\ud800", 1.0), *sales(8, 20))
    ((record, reason),) = driven.out.failed
    assert record.id == 7
    assert "surrogates not allowed" in str(reason)
    assert len(driven.out.acked) == len(stored_rows(dsn)) == 19


def test_a_row_whose_key_has_no_order_and_no_column_type_fails_alone(
    drive: Drive, dsn: str
) -> None:
    class NoText:
        def __repr__(self) -> str:
            raise RuntimeError("no text")

    driven = drive(new_table(dsn))
    without: Any = NoText()
    driven.take(Sale(1, "a", 1.0), Sale(without, "b", 1.0), Sale(1, "c", 1.0))
    assert (len(driven.out.acked), len(driven.out.failed)) == (2, 1)
    assert stored_rows(dsn) == [(1, "c", 1.0)]


class Version(NamedTuple):
    id: Any
    part: Any
    text: str


NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
ID = UUID("00000000-0000-0000-0000-0000000000ab")
SAME_KEYS: dict[str, tuple[str, list[Any]]] = {
    "whole numbers": ("numeric", [7, 7.0, Decimal("7.00"), "7"]),
    "numbers with zeros": ("numeric(9, 1)", [Decimal("7.000"), 7, Decimal("7.0")]),
    "zeros": ("double precision", [0.0, -0.0, 0]),
    "integers and their texts": ("bigint", [10, "10", "010"]),
    "moments": ("timestamptz", [NOON, NOON.astimezone(timezone(timedelta(hours=2)))]),
    "moments of a second": (
        "timestamptz(0)",
        [NOON, NOON.astimezone(timezone(timedelta(hours=-5)))],
    ),
    "padded texts": ("char(8)", ["b ", "b", "b  "]),
    "texts that are cut": ("varchar(2)", ["ab ", "ab", "ab   "]),
    "texts of any case": ("citext", ["Ab", "aB", "ab"]),
    "texts with a collation": ("text COLLATE any_case", ["Ab", "aB", "ab"]),
    "dates": ("date", ["2024-01-02", date(2024, 1, 2), "20240102"]),
    "UUIDs": ("uuid", [ID, str(ID).upper(), ID.hex]),
    "intervals": ("interval", [timedelta(days=1), timedelta(hours=24), "24:00"]),
    "documents": ("jsonb", [{"a": 1, "b": 1.0}, {"b": 1, "a": 1}]),
}


MADE = {
    "citext": "CREATE EXTENSION IF NOT EXISTS citext",
    "any_case": "CREATE COLLATION IF NOT EXISTS any_case "
    "(provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
}


@pytest.mark.parametrize("case", SAME_KEYS)
def test_the_last_of_the_records_whose_keys_are_equal_in_the_database_is_stored(
    drive: Drive, postgres: str, case: str
) -> None:
    kind, keys = SAME_KEYS[case]
    try:
        execute(postgres, "SELECT 1", *(MADE[name] for name in MADE if name in kind))
    except (NotSupportedError, OperationalError) as error:
        pytest.skip(f"this build of PostgreSQL has no {kind}: {error}")
    execute(
        postgres, f"CREATE TABLE versions (id {kind}, part int, text text, PRIMARY KEY (part, id))"
    )
    try:
        bolt = PostgresTable(postgres, "versions", key=("id", "part"))
        bolt.check_input(Schema.of(Version))
        driven = drive(bolt)
        for written, order in enumerate((*permutations(keys, 2), keys, keys[::-1])):
            versions = [Version(key, written, f"{number}") for number, key in enumerate(order)]
            refused = Version(order[0], "x", "")  # so that the rows are written in halves
            driven.take(versions[0], Version(None, written, "nothing"), refused, *versions[1:])
            last = [(written, f"{len(order) - 1}")]
            stored = "SELECT part, text FROM versions ORDER BY part"
            assert execute(postgres, stored)[written:] == last
    finally:
        execute(postgres, "DROP TABLE versions")


def test_the_last_record_is_stored_of_keys_that_a_trigger_makes_equal(
    drive: Drive, postgres: str
) -> None:
    execute(
        postgres,
        "CREATE TABLE versions (id text PRIMARY KEY, part int, text text)",
        "CREATE FUNCTION to_lower() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN NEW.id = lower(NEW.id); RETURN NEW; END $$",
        "CREATE TRIGGER lower BEFORE INSERT ON versions FOR EACH ROW EXECUTE FUNCTION to_lower()",
    )
    try:
        bolt = PostgresTable(postgres, "versions", key="id")
        bolt.check_input(Schema.of(Version))
        drive(bolt).take(Version("b", 1, "old"), Version("B", 1, "new"))
        assert execute(postgres, "SELECT * FROM versions") == [("b", 1, "new")]
    finally:
        execute(postgres, "DROP TABLE versions", "DROP FUNCTION to_lower")


def test_two_tasks_that_write_the_same_rows_in_another_order_do_not_deadlock(
    drive: Drive, postgres: str
) -> None:
    execute(postgres, "CREATE TABLE versions (id numeric PRIMARY KEY, part int, text text)")
    keys: list[Any] = [*range(1000), 0.5]  # which the database alone can compare

    def write(order: list[Any]) -> None:
        bolt = PostgresTable(postgres, "versions", key="id")
        bolt.check_input(Schema.of(Version))
        driven = drive(bolt)
        for _ in range(3):
            driven.take(*(Version(key, 1, "") for key in order))

    try:
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(write, (keys, keys[::-1])))
        assert execute(postgres, "SELECT count(*) FROM versions") == [(1001,)]
    finally:
        execute(postgres, "DROP TABLE versions")


def test_a_refused_row_becomes_a_dead_letter_and_its_neighbours_do_not(dsn: str) -> None:
    records = [*sales(0, 50), Sale(50, None, 1.0)]  # type: ignore[arg-type]
    topology = Topology("shop")
    retry = Retry(attempts=2, dead_letters=True)
    spout = topology.spout("sales", Records(records, type=Sale), retry=retry)
    spout.shuffle().bolt("table", PostgresTable(dsn, "sales", key="id"))
    spout.stream("dead_letters").shuffle().bolt("letters", Seen())
    done = run(topology)
    (letter,) = done.emitted("sales", stream="dead_letters")
    assert "not-null" in letter.reason
    assert letter.exception == "StoreError"
    assert len(stored_rows(dsn)) == 50
    assert done.snapshot.component("sales").failed == 2


def test_a_row_that_violates_a_deferred_constraint_fails_alone(drive: Drive, dsn: str) -> None:
    execute(
        dsn,
        "CREATE TABLE lines (id integer PRIMARY KEY, sale integer"
        " REFERENCES sales DEFERRABLE INITIALLY DEFERRED)",
        "INSERT INTO sales VALUES (1, 'a', 1)",
    )
    columns = {"id": "id", "sale": lambda record: int(record.price)}
    driven = drive(PostgresTable(dsn, "lines", key="id", columns=columns))
    driven.take(Sale(1, "a", 1.0), Sale(2, "a", 9.0), Sale(3, "a", 1.0))
    assert execute(dsn, "SELECT id FROM lines ORDER BY id") == [(1,), (3,)]
    assert [record.id for record, _ in driven.out.failed] == [2]
    execute(dsn, "DROP TABLE lines")


def test_a_statement_that_is_refused_is_not_charged_to_its_rows(dsn: str) -> None:
    is_renamed = False

    def read() -> Iterator[Sale | None]:
        for sale in sales(0, 100):
            while sale.id >= 50 and not is_renamed:
                yield None
            yield sale

    topology = Topology("shop", workers=1, message_timeout_s=300)
    # One attempt: a single one that is charged would end the topology.
    spout = topology.spout("sales", Records(read, type=Sale), retry=Retry(attempts=1))
    spout.shuffle().bolt("table", PostgresTable(dsn, "sales", key="id"))
    with running(topology) as run:
        run.until(lambda: len(stored_rows(dsn)) == 50)
        execute(dsn, "ALTER TABLE sales RENAME COLUMN price TO cents")
        is_renamed = True
        run.until_waiting(WaitKind.UNAVAILABLE)
        assert len(stored_rows(dsn)) == 50
        execute(dsn, "ALTER TABLE sales RENAME COLUMN cents TO price")
        run.until(lambda: run.core.finished)
    assert stored_rows(dsn) == [tuple(sale) for sale in sales(0, 100)]


@pytest.mark.parametrize(
    ("table", "options", "error", "expected"),
    [
        ("nothing", {}, StoreError, '"nothing" does not exist'),
        ("sales", {"columns": {"id": "id", "cost": "price"}}, StoreError, '"cost"'),
        ("sales", {"key": "item"}, StoreError, "no unique or exclusion constraint"),
    ],
)
def test_a_table_or_column_that_does_not_fit_is_an_error_at_the_start(
    drive: Drive, dsn: str, table: str, options: Any, error: type[Exception], expected: str
) -> None:
    bolt = PostgresTable(dsn, table, **{"key": "id", **options})
    bolt.check_input(Schema.of(Sale))
    with pytest.raises(error, match=expected):
        drive(bolt)


class Word(NamedTuple):
    word: str


def test_wrong_declarations_are_refused_where_they_are_written() -> None:
    with pytest.raises(ConfigError, match="version"):
        PostgresTable(UNREACHABLE, "t", key="id", columns={"id": "id"}, version="at")
    with pytest.raises(ConfigError, match="key has no column"):
        PostgresTable(UNREACHABLE, "t", key=())
    words = Topology("t").spout("words", Records([Word("a")], type=Word))
    with pytest.raises(ConfigError, match="the columns are: word"):
        words.shuffle().bolt("out", PostgresTable(UNREACHABLE, "t", key="id"))
    table = PostgresTable(UNREACHABLE, "t", key="id", columns={"id": "weight"})
    with pytest.raises(UnknownField, match="weight"):
        words.shuffle().bolt("other", table)
    topology = Topology("t")
    pairs = topology.spout("pairs", Records([("a", 1)]), fields=("id", "count"))
    others = topology.spout("others", Records([("a", 1)]), fields=("weight", "id"))
    inputs = [pairs.shuffle(), others.shuffle()]
    with pytest.raises(RecordMismatch, match=r"\(id, count\) and \(weight, id\)"):
        topology.bolt(
            "out", PostgresTable(UNREACHABLE, "t", key="id", columns={"id": "id"}), inputs
        )


def test_an_unavailable_database_at_the_start_is_an_outage(drive: Drive) -> None:
    bolt = PostgresTable(UNREACHABLE, "t", key="id", columns={"id": "id"})
    with pytest.raises(StoreUnreachable, match="table 't'"):
        drive(bolt)


@pytest.mark.servers
def test_a_database_that_is_killed_under_load_loses_nothing(tmp_path: Path) -> None:
    total, ready, killed = 4_000, threading.Event(), threading.Event()

    def read() -> Iterator[Sale | None]:
        for sale in sales(0, total):
            while sale.id >= total // 2 and not ready.is_set():
                yield None
            while sale.id >= total - 100 and not killed.is_set():
                yield None  # rows are left for the time after the kill
            yield sale

    def kill(server: Server) -> None:
        server.kill()
        killed.set()

    with postgres_server(tmp_path / "postgres") as server:
        execute(server.dsn, SALES)
        topology = Topology("shop", workers=1, message_timeout_s=300)
        # One attempt: a single one that is charged would end the topology.
        spout = topology.spout("sales", Records(read, type=Sale), retry=Retry(attempts=1))
        spout.shuffle().bolt("table", PostgresTable(server.dsn, "sales", key="id"), parallelism=2)
        with running(topology) as run:

            def counts() -> Any:
                return run.core.stats().components["sales"]

            run.until(lambda: execute(server.dsn, "SELECT count(*) FROM sales")[0][0] > 500)
            killer = threading.Thread(target=kill, args=(server,))
            killer.start()
            ready.set()
            run.until_waiting()
            killer.join()
            run.step_for(0.5)  # the bolt retries
            server.start()
            run.until(lambda: run.core.finished)
        assert stored_rows(server.dsn) == [tuple(sale) for sale in sales(0, total)]
