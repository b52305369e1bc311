"""Checks that each claim in docs/SECURITY.md names existing tests, and checks two of the claims."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from sunshower.state import PostgresState, RedisState, postgres_backing, redis_backing
from tests.structure.reading import text

PAGE = Path("docs/SECURITY.md")
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in text(PAGE).splitlines()
    if line.startswith("| ") and not line.startswith("| claim")
]
CERTIFICATES = "ssl_cert_reqs=required&ssl_ca_certs=/ca.pem"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:50])
def test_claim_has_tests(row: list[str]) -> None:
    claim, tests = row
    named = TEST.findall(tests)
    assert claim
    assert named
    for path, name in named:
        assert f"def {name}(" in text(Path(path)) if name else Path(path).exists()


def test_each_file_of_security_tests_is_named_on_the_page() -> None:
    files = {path for path, _ in TEST.findall(text(PAGE))}
    here = {str(path) for path in Path("tests/security").glob("test_*.py")}
    assert here <= files


def test_pickles_are_read_only_where_ray_is_trusted() -> None:
    reads = re.compile(r"\bc?l?o?u?d?pickle\.loads?\(")
    paths = {str(path) for path in Path("sunshower").rglob("*.py") if reads.search(text(path))}
    assert {path.split("/")[1] for path in paths} == {"actors", "simulation", "spark_integration"}


def test_addresses_reach_their_clients_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    redis = pytest.importorskip("redis")
    psycopg = pytest.importorskip("psycopg")
    client = redis_backing.connect(RedisState(f"rediss://me:w0rd@host/0?{CERTIFICATES}").url, 1.0)
    assert client.connection_pool.connection_class is redis.SSLConnection
    assert client.connection_pool.connection_kwargs["ssl_ca_certs"] == "/ca.pem"
    assert client.connection_pool.connection_kwargs["password"] == "w0rd"
    dsn, seen = "host=h password=w0rd sslmode=verify-full sslrootcert=/ca.pem", []

    def connect(conninfo: str, **_: Any) -> None:
        seen.append(conninfo)
        raise psycopg.ProgrammingError

    monkeypatch.setattr(psycopg, "connect", connect)
    with pytest.raises(Exception, match="is no address"):
        postgres_backing.connect(PostgresState(dsn).dsn, 1.0)
    assert seen == [dsn]
