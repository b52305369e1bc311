"""What a store refuses for every batch while a state is open is an outage; a value alone is not."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sunshower.errors import StoreError, StoreUnreachable, Unavailable
from sunshower.outages import is_unavailable
from tests.connectors.postgres_server import execute
from tests.trident.rigs.additions import PLACE, batch
from tests.trident.rigs.every_store import state_in

Broken = Callable[[Any, str], Any]


@contextmanager
def renamed_in_sqlite(factory: Any, name: str) -> Iterator[None]:
    with closing(sqlite3.connect(factory.file)) as db:
        db.execute(f'ALTER TABLE "{name}" RENAME TO elsewhere')
        yield
        db.execute(f'ALTER TABLE elsewhere RENAME TO "{name}"')


@contextmanager
def replaced_in_redis(factory: Any, name: str) -> Iterator[None]:
    from redis import Redis

    values = f"sunshower:{{{name}/0}}:values"
    with closing(Redis.from_url(factory.url.reveal())) as client:
        client.rename(values, "elsewhere")
        client.set(values, "a text")  # WRONGTYPE
        yield
        client.rename("elsewhere", values)


@contextmanager
def renamed_in_postgres(factory: Any, name: str) -> Iterator[None]:
    execute(factory.dsn.reveal(), f'ALTER TABLE "{name}" RENAME TO elsewhere')
    yield
    execute(factory.dsn.reveal(), f'ALTER TABLE elsewhere RENAME TO "{name}"')


@contextmanager
def readonly_in_postgres(factory: Any, name: str) -> Iterator[None]:
    change = f'ALTER TABLE "{name}" ADD COLUMN other int'
    execute(factory.dsn.reveal(), change, f'ALTER TABLE "{name}" RENAME value TO former')
    yield
    execute(factory.dsn.reveal(), f'ALTER TABLE "{name}" RENAME former TO value')


CASES = [
    ("sqlite", renamed_in_sqlite),
    *(
        pytest.param(store, broken, marks=pytest.mark.servers)
        for store, broken in [
            ("redis", replaced_in_redis),
            ("postgres", renamed_in_postgres),
            ("postgres", readonly_in_postgres),
        ]
    ),
]


@pytest.mark.parametrize(("store", "broken"), CASES)
def test_a_store_that_refuses_every_batch_is_an_outage(
    request: pytest.FixtureRequest, tmp_path: Path, store: str, broken: Broken
) -> None:
    factory = state_in(request, store, tmp_path)
    with closing(factory.make(PLACE)) as state:
        batch(state, 1, storm=3)
        with broken(factory, factory.name or ""):
            for attempt in range(2):
                with pytest.raises(StoreError) as refused:
                    batch(state, 2, attempt=attempt, storm=5, ray=1)
                assert is_unavailable(refused.value)
        batch(state, 2, attempt=2, storm=5, ray=1)
    assert dict(factory.items()) == {"storm": 8, "ray": 1}


@pytest.mark.servers
@pytest.mark.parametrize("store", ["zookeeper", "postgres"])
def test_a_value_that_a_store_cannot_take_is_no_outage(
    request: pytest.FixtureRequest, tmp_path: Path, store: str
) -> None:
    factory = state_in(request, store, tmp_path)
    key = "".join(uuid.uuid4().hex for _ in range(40_000))  # longer than a node, or an index row
    with closing(factory.make(PLACE)) as state:
        with pytest.raises(StoreError) as refused:
            batch(state, 1, **{key: 1})
        assert not isinstance(refused.value, Unavailable | StoreUnreachable)
        batch(state, 1, attempt=1, storm=3)
    assert dict(factory.items()) == {"storm": 3}
