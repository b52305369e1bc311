"""The same rules in every store: Storm's format, pickling, opening again, and refusals."""

from __future__ import annotations

import json
import pickle
import re
import sqlite3
from collections import Counter
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sunshower.errors import ConfigError, StateMismatch, StoreError, StoreUnreachable, Unavailable
from sunshower.installed import install_command
from sunshower.records import key_of
from sunshower.state.backing import Home
from sunshower.state.zookeeper_tree import ZooKeeperTree
from sunshower.topologies.components import Context
from sunshower.topologies.operators.port import Attempt
from sunshower.topologies.operators.state_slot import TaskMemory
from sunshower.topologies.operators.states import Place, StateKind
from sunshower.trident.declaration.stage_builder import InMemory
from sunshower.trident.stages.persisting import BatchSlot
from sunshower.trident.states.factories import KeptState, PostgresState, RedisState, SqliteState
from sunshower.trident.states.stored_map import CountedIn
from tests.runtime.field_values import exactly
from tests.trident.rigs.additions import OPAQUE, PLACE, TRANSACTIONAL, batch
from tests.trident.rigs.every_store import state_in, stores
from tests.trident.states.test_texts import keys as plain_keys
from tests.trident.states.test_texts import values as plain_values

Make = Callable[[StateKind], KeptState]


@pytest.fixture
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes the state of one store."""
    return lambda kind: state_in(request, request.param, tmp_path, kind)


every_store = pytest.mark.parametrize("make", stores("sqlite"), indirect=True)


@every_store
@pytest.mark.parametrize("kind", [TRANSACTIONAL, OPAQUE])
def test_a_state_is_the_same_in_every_store(make: Make, kind: StateKind) -> None:
    factory: KeptState = pickle.loads(pickle.dumps(make(kind)))
    places = [Place("words", "ignored", index, 2) for index in range(2)]
    for place in places:
        state = factory.make(place)
        batch(state, 1, storm=3, ray=1)
        batch(state, 2, storm=5)
        state.close()
        again = factory.make(place)
        assert batch(again, 2, attempt=1, storm=5) == [8]
        assert again.multi_get(["ray", "storm", "sun"]) == [1, 8, None]
        again.begin_commit(Attempt(3, 0, 1))
        again.multi_remove(["storm"])
        again.multi_put([("ray", 1)], [{"list": [1, (2, None)]}])
        again.commit(Attempt(3, 0, 1))
        again.close()
    assert sorted(factory.items(factory.name), key=str) == sorted(
        [("ray", 1), (("ray", 1), {"list": [1, (2, None)]})] * 2, key=str
    )
    with pytest.raises(StateMismatch, match=r"counts|parallelism"):
        factory.make(Place("words", "ignored", 0, 3))


def grown(old: dict[str, list[int]] | None) -> dict[str, list[int]]:
    """An update that changes a value in place."""
    value = old or {"list": []}
    value["list"].append(len(value["list"]))
    return value


@pytest.mark.parametrize("store", ["the task", *stores("memory", "sqlite")])
@pytest.mark.parametrize("kind", StateKind)
def test_a_caller_may_change_what_an_update_returns(
    store: str, kind: StateKind, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The values before and after a batch are its own, also in an attempt that repeats it, in this
    process or another. What a stored state returns to a reader is its own, too."""
    is_stored = store != "the task"
    factory = state_in(request, store if is_stored else "memory", tmp_path, kind)
    state: Any = factory.make(PLACE) if is_stored else TaskMemory()
    expected: list[int] = []
    for txid, number in [(1, 0), (2, 0), (2, 1), (2, 2), (3, 0)]:
        if is_stored and number != 1:
            state.close()
            state = factory.make(PLACE)
        is_again = is_stored and number > 0
        if is_again and kind is OPAQUE:
            expected = expected[:-2]
        state.begin_commit(Attempt(txid, number, 1))
        (value,) = state.multi_get(["storm"])
        if is_stored and value is not None:
            value["list"].append("not put")
        for _ in range(2):
            if not (is_again and kind is TRANSACTIONAL):
                expected = [*expected, len(expected)]
            (value,) = state.multi_update(["storm"], [grown])
            assert value == {"list": expected}
            value["list"].append("not mine")
            value["other"] = "not mine"
        state.commit(Attempt(txid, number, 1))
        assert state.multi_get(["storm"]) == [{"list": expected}]
    state.close()


@every_store
@pytest.mark.parametrize("kind", StateKind)
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(pairs=st.lists(st.tuples(plain_keys, plain_values), min_size=1, max_size=5))
def test_plain_values_under_plain_keys_come_back_from_every_store(
    make: Make, kind: StateKind, pairs: list[tuple[Any, Any]]
) -> None:
    content = {key_of(key): value for key, value in [*pairs, *HOSTILE.items()]}
    factory, place = make(kind), Place("words", "ignored", 0, 1)
    state = factory.make(place)
    last = state.last_attempt
    attempt = Attempt(last.txid + 1 if last else 1, 0, 1)
    state.begin_commit(attempt)
    state.multi_put([*content], [*content.values()])
    state.commit(attempt)
    state.close()
    again = factory.make(place)
    values = again.multi_get([*content])
    assert [exactly(value) for value in values] == [exactly(value) for value in content.values()]
    stored = dict(again.items())
    assert stored.keys() >= {key for key, value in content.items() if value is not None}
    again.close()


HOSTILE: dict[Any, Any] = {
    "\ud800": {1: "\udfff", "\ud83d\ude00": (None, b"\x00")},
    "\x00": Counter({("a", 1): 2, frozenset([1.5]): 3}),
    ("\ud83d\ude00", 1): {"(dict)": [[1, 2]]},
    "😀": {"(set)": {None: {date(2026, 1, 2): {Decimal("1.50")}}}},
    None: {True: "\x00"},
}


def stored_in_sqlite(factory: Any, name: str) -> str:
    with sqlite3.connect(factory.file) as db:
        stored: str = db.execute(f'SELECT value FROM "{name}"').fetchone()[0]
    return stored


def stored_in_zookeeper(factory: Any, name: str) -> str:
    tree = ZooKeeperTree(factory.hosts)
    place = f"/sunshower/states/{name.replace(' ', '%20')}/0/values/%22storm%22"
    node = tree.get(place)
    tree.close()
    assert node
    return node.value.decode()


def stored_in_redis(factory: Any, name: str) -> str:
    from redis import Redis

    with Redis.from_url(factory.url.reveal(), decode_responses=True) as client:
        stored: Any = client.hget(f"sunshower:{{{name}/0}}:values", '"storm"')
    return str(stored)


def stored_in_postgres(factory: Any, name: str) -> str:
    import psycopg

    with psycopg.connect(factory.dsn.reveal()) as db:
        row = db.execute(f'SELECT value FROM "{name}"'.encode()).fetchone()
    assert row
    return str(row[0])


@pytest.mark.parametrize(
    ("make", "stored"),
    [
        ("sqlite", stored_in_sqlite),
        *(
            pytest.param(look.__name__[10:], look, marks=pytest.mark.servers)
            for look in (stored_in_zookeeper, stored_in_redis, stored_in_postgres)
        ),
    ],
    indirect=["make"],
)
@pytest.mark.parametrize(("kind", "wanted"), [(OPAQUE, [2, 8, 3]), (TRANSACTIONAL, [2, 8])])
def test_values_are_stored_as_storms_json(
    make: Make, stored: Callable[[Any, str], str], kind: StateKind, wanted: list[int]
) -> None:
    factory = make(kind)
    state = factory.make(Place("words", "ignored", 0, 1))
    batch(state, 1, storm=3)
    batch(state, 2, storm=5)
    state.close()
    assert json.loads(stored(factory, factory.name or "")) == wanted


def test_a_relative_path_is_resolved_where_it_is_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    factory = SqliteState("counts.db")
    monkeypatch.chdir("/")
    batch(factory.make(Place("words", "counts", 0, 1)), 1, storm=3)
    assert dict(SqliteState(tmp_path / "counts.db").items()) == {"storm": 3}
    assert dict(SqliteState(tmp_path / "other.db").items()) == {}


@pytest.mark.parametrize(
    ("factory", "what"),
    [
        (
            RedisState("redis://name:secret@127.0.0.1:1/0"),
            "the Redis at redis://name:•••@127.0.0.1",
        ),
        (PostgresState("postgresql://name:secret@127.0.0.1:1/x"), "PostgreSQL .* cannot be used"),
    ],
)
def test_an_unreachable_server_is_reported_without_the_password(
    factory: KeptState, what: str
) -> None:
    pytest.importorskip("redis")
    pytest.importorskip("psycopg")
    with pytest.raises(StoreUnreachable, match=what) as caught:
        factory.make(Place("words", "counts", 0, 1))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("factory", [RedisState("http://x"), PostgresState("what?")])
def test_an_invalid_address_is_reported(factory: KeptState) -> None:
    pytest.importorskip("redis")
    pytest.importorskip("psycopg")
    with pytest.raises(ConfigError, match="is no address of a"):
        factory.make(Place("words", "counts", 0, 1))


@pytest.mark.parametrize(
    ("factory", "extra"),
    [(RedisState("redis://x"), "redis"), (PostgresState("postgresql://x"), "postgres")],
)
def test_a_missing_client_is_reported(
    factory: KeptState, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(StoreError, match=re.escape(install_command(extra))) as caught:
        factory.make(Place("words", "counts", 0, 1))
    assert not isinstance(caught.value, Unavailable), "waiting does not install it"


@every_store
def test_a_state_that_was_rolled_back_is_refused_in_every_store(make: Make) -> None:
    factory, store = make(OPAQUE), InMemory()

    def opened() -> BatchSlot:
        slot = BatchSlot(factory, "counts")
        slot.counted = CountedIn(store, ("/transactional/lines/coordinator",))
        slot.open(Context("words", "counts", 0, 0, 1))
        return slot

    slot, backing = opened(), factory.open(Home(factory.name or "", 0))
    marks = []
    for txid in (1, 2):
        slot.begin_commit(Attempt(txid, 0, 1))
        slot.state.multi_put(["storm"], [txid])
        slot.commit(Attempt(txid, 0, 1))
        marks.append(backing.mark())
    slot.close()
    opened().close()
    former, last = marks
    assert former is not None
    assert last is not None
    backing.put({}, former, last.word)
    backing.close()
    with pytest.raises(StateMismatch, match=r"by batch 1, .* but it had batch 2"):
        opened()
