"""Rules that all backings of states fulfil: memory, SQLite, ZooKeeper, Redis and PostgreSQL."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from sunshower.errors import ConfigError, StoreError, WrongVersion
from sunshower.state.backing import Backing, Home, Mark, MemoryBacking, MemoryShelf
from sunshower.state.sqlite import SqliteBacking
from sunshower.state.sqlite import homes as sqlite_homes
from sunshower.state.zookeeper_tree import ZooKeeperBacking, ZooKeeperTree
from sunshower.state.zookeeper_tree import homes as zookeeper_homes

FIRST, SECOND, THIRD = (Mark(f'{{"txid": {txid}}}', f"journal {txid} 你") for txid in (1, 2, 3))


ANSWER_S = 60.0  # only so that a test ends


@dataclass
class Store:
    """A store under test, which opens backings and closes them at the end."""

    new: Callable[[Home], Backing]
    homes: Callable[[], list[Home]]
    stack: ExitStack
    state: str

    def open(self, task: int = 0, state: str = "") -> Backing:
        return self.stack.enter_context(closing(self.new(Home(state or self.state, task))))


Made = tuple[Callable[[Home], Backing], Callable[[], list[Home]]]


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    new, homes = request.getfixturevalue(request.param)
    with ExitStack() as stack:
        yield Store(new, homes, stack, f"state/{uuid.uuid4().hex[:8]} 你 \"'")


@pytest.fixture
def in_memory() -> Made:
    shelf = MemoryShelf()
    return lambda home: MemoryBacking(shelf, home), lambda: sorted(shelf.marks)


@pytest.fixture
def in_sqlite(tmp_path: Path) -> Made:
    file = tmp_path / "states" / "states.db"
    return (
        lambda home: SqliteBacking(file, home, answer_within_s=ANSWER_S),
        lambda: sqlite_homes(file, answer_within_s=ANSWER_S),
    )


@pytest.fixture
def in_zookeeper(request: pytest.FixtureRequest) -> Made:
    hosts = request.getfixturevalue("zookeeper").connect

    def tree() -> ZooKeeperTree:
        return ZooKeeperTree(hosts, answer_within_s=ANSWER_S)

    def homes() -> list[Home]:
        with closing(tree()) as opened:
            return zookeeper_homes(opened, "/states")

    return lambda home: ZooKeeperBacking(tree(), "/states", home), homes


@pytest.fixture
def in_redis(request: pytest.FixtureRequest) -> Made:
    from sunshower.state import redis_backing

    url = request.getfixturevalue("redis")
    return (
        lambda home: redis_backing.RedisBacking(url, home, answer_within_s=ANSWER_S),
        lambda: redis_backing.homes(url, "sunshower"),
    )


@pytest.fixture
def in_postgres(request: pytest.FixtureRequest) -> Made:
    from sunshower.state import postgres_backing

    dsn = request.getfixturevalue("postgres")
    return (
        lambda home: postgres_backing.PostgresBacking(dsn, home, answer_within_s=ANSWER_S),
        lambda: postgres_backing.homes(dsn),
    )


SERVERS = [
    pytest.param(name, marks=pytest.mark.servers)
    for name in ("in_zookeeper", "in_redis", "in_postgres")
]
every_store = pytest.mark.parametrize("store", ["in_memory", "in_sqlite", *SERVERS], indirect=True)


@every_store
def test_values_that_were_put_are_read_by_later_clients(store: Store) -> None:
    backing = store.open()
    assert backing.mark() is None
    assert backing.get(['"storm"']) == [None]
    backing.put({'"storm"': "[1,3,null]", '["a/b",1]': '[1,"你\\u0000 \'\\" ",null]'}, FIRST, None)
    for client in (backing, store.open()):
        assert client.mark() == FIRST
        assert client.get(['["a/b",1]', '"none"', '"storm"', '"storm"']) == [
            '[1,"你\\u0000 \'\\" ",null]',
            None,
            "[1,3,null]",
            "[1,3,null]",
        ]
    assert backing.get([]) == []


@every_store
def test_a_put_replaces_values_and_none_removes_them(store: Store) -> None:
    backing = store.open()
    backing.put({"1": "a", "2": "b", "3": "c"}, FIRST, None)
    backing.put({"1": "A", "2": None, "4": None, "5": "E"}, SECOND, FIRST.word)
    assert dict(backing.items()) == {"1": "A", "3": "c", "5": "E"}
    assert store.open().mark() == SECOND


@every_store
def test_only_local_backings_count_their_keys(store: Store, request: pytest.FixtureRequest) -> None:
    backing = store.open()
    is_here = any(f"[{name}" in request.node.name for name in ("in_memory", "in_sqlite"))
    assert backing.count() == (0 if is_here else None)
    backing.put({"1": "a", "2": "b", "3": "c"}, FIRST, None)
    backing.put({"1": "A", "2": None, "4": None, "5": "E"}, SECOND, FIRST.word)
    assert backing.count() == (3 if is_here else None)


@every_store
def test_a_batch_without_changes_stores_its_mark(store: Store) -> None:
    backing = store.open()
    backing.put({}, FIRST, None)
    assert store.open().mark() == FIRST


@every_store
def test_a_put_with_a_stale_mark_is_refused_and_changes_nothing(store: Store) -> None:
    first, second = store.open(), store.open()
    first.put({"1": "one"}, FIRST, None)
    for seen in (None, SECOND.word):
        with pytest.raises(WrongVersion, match="was written by another process"):
            second.put({"1": "two", "2": "two"}, THIRD, seen)
    assert dict(second.items()) == {"1": "one"}
    assert second.mark() == FIRST


@every_store
def test_a_repeated_put_is_applied_once(store: Store) -> None:
    first, second = store.open(), store.open()
    first.put({"1": "one"}, FIRST, None)
    second.put({"1": "one"}, FIRST, None)
    first.put({"1": "two"}, SECOND, FIRST.word)
    second.put({"1": "two"}, SECOND, FIRST.word)
    with pytest.raises(WrongVersion):
        second.put({"1": "one"}, FIRST, None)  # a repetition after the next batch
    assert dict(second.items()) == {"1": "two"}


@every_store
def test_each_task_of_each_state_has_its_own_values(store: Store) -> None:
    other = f"{store.state} other"
    before = store.homes()
    store.open(task=0).put({"1": "a"}, FIRST, None)
    store.open(task=1).put({"1": "b"}, SECOND, None)
    store.open(state=other).put({"1": "c"}, THIRD, None)
    store.open(task=2)  # has written nothing
    assert [dict(store.open(task).items()) for task in range(3)] == [{"1": "a"}, {"1": "b"}, {}]
    assert dict(store.open(state=other).items()) == {"1": "c"}
    assert store.open(task=1).mark() == SECOND
    homes = [home for home in store.homes() if home not in before]
    assert homes == sorted([Home(store.state, 0), Home(store.state, 1), Home(other, 0)])


@every_store
def test_no_put_of_concurrent_writers_is_lost(store: Store) -> None:
    def count(backing: Backing, writer_id: int) -> None:
        added = 0
        while added < 8:
            mark = backing.mark()
            number = int(mark.word.split()[0]) if mark else 0
            assert mark is None or mark.journal == f"journal of {mark.word}"
            word = f"{number + 1} by {writer_id}"
            try:
                backing.put(
                    {str(number): word}, Mark(word, f"journal of {word}"), mark and mark.word
                )
            except WrongVersion:
                continue
            added += 1

    backings = [store.open() for _ in range(3)]
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(count, backings, range(3)))
    assert len(dict(backings[0].items())) == 24


@every_store
def test_a_batch_may_have_many_keys(store: Store) -> None:
    backing = store.open()
    count = 600 if isinstance(backing, ZooKeeperBacking) else 6_000  # kazoo takes its time
    many = {f'"key {number}"': f"[1,{number},null]" for number in range(count)}
    backing.put(many, FIRST, None)
    assert backing.get([*many, '"none"']) == [*many.values(), None]
    assert dict(backing.items()) == many
    backing.put(dict.fromkeys(many), SECOND, FIRST.word)
    assert dict(backing.items()) == {}


@pytest.mark.parametrize("store", [SERVERS[0]], indirect=True)
def test_a_batch_above_the_limit_of_zookeeper_is_refused(store: Store) -> None:
    backing = store.open()
    with pytest.raises(StoreError, match="ZooKeeper takes 900000 at once: make batches smaller"):
        backing.put({"1": "x" * 2**20}, FIRST, None)
    assert backing.mark() is None


@pytest.mark.parametrize("store", [SERVERS[0]], indirect=True)
def test_a_transaction_whose_answer_was_lost_succeeds_when_it_is_repeated(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    backing, other = store.open(), store.open()
    assert isinstance(backing, ZooKeeperBacking)
    ask = backing._tree.ask

    def ask_twice(call: Callable[..., object], *arguments: object, **named: object) -> object:
        ask(call, *arguments, **named)
        return ask(call, *arguments, **named)

    monkeypatch.setattr(backing._tree, "ask", ask_twice)
    backing.put({"1": "one"}, FIRST, None)
    backing.put({"1": "two", "2": "two"}, SECOND, FIRST.word)
    assert dict(other.items()) == {"1": "two", "2": "two"}
    assert other.mark() == SECOND


@pytest.mark.parametrize("name", ["sqlite_x", "sunshower_marks", "PG_x", "a\0b"])
def test_names_that_the_database_reserves_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="is no name for a state"):
        SqliteBacking(tmp_path / "states.db", Home(name, 0))


def test_many_clients_can_open_a_new_file_at_once(tmp_path: Path) -> None:
    """SQLite does not wait while another client changes the file's mode, so the backing waits."""

    def open_one(number: int) -> None:
        file, home = tmp_path / f"{number // 6}.db", Home("counts", number % 6)
        with closing(SqliteBacking(file, home, answer_within_s=ANSWER_S)):
            pass

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(open_one, range(60)))


def test_a_state_whose_name_differs_only_in_case_is_refused(tmp_path: Path) -> None:
    """SQLite ignores the case of table names, so two states would share a table."""
    with closing(SqliteBacking(tmp_path / "states.db", Home("Sums", 0))) as backing:
        backing.put({"1": "1"}, FIRST, None)
    with pytest.raises(ConfigError, match="there is a table 'Sums' already"):
        SqliteBacking(tmp_path / "states.db", Home("sums", 0))


def test_a_reader_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    file = tmp_path / "states.db"
    with closing(SqliteBacking(file, Home("sums", 0))) as backing:
        backing.put({"1": "1"}, FIRST, None)
    with closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with closing(SqliteBacking(file, Home("sums", 0), answer_within_s=0.0)) as reader:
            assert dict(reader.items()) == {"1": "1"}
        assert sqlite_homes(file, answer_within_s=0.0) == [Home("sums", 0)]
