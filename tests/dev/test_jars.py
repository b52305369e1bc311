"""Jars are taken from the cache if their checksum is right, and fetched otherwise."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from sunshower.dev.jars import (
    RELEASES,
    Jar,
    Release,
    cache,
    fetch,
    read_lock,
)
from sunshower.errors import Unobtainable

RIGHT = b"a jar"
SHA256 = hashlib.sha256(RIGHT).hexdigest()
ONE = Jar(SHA256, "org.example", "one", "1.0")
TWO = Jar(SHA256, "org.example", "two", "2.0")


class Repository:
    """Fetches `content` for every jar, and records the names."""

    def __init__(self, content: bytes = RIGHT) -> None:
        self.content = content
        self.fetched: list[str] = []

    def __call__(self, jar: Jar, cache: Path) -> None:
        self.fetched.append(jar.file)
        assert not jar.path(cache).exists()
        jar.path(cache).parent.mkdir(parents=True, exist_ok=True)
        jar.path(cache).write_bytes(self.content)


def test_missing_jars_are_fetched_once_and_reported(tmp_path: Path) -> None:
    repository, messages = Repository(), list[str]()
    paths = fetch([ONE, TWO], tmp_path, messages.append, repository)
    assert [path.read_bytes() for path in paths] == [RIGHT, RIGHT]
    assert messages == ["fetching 1 of 2: one-1.0.jar", "fetching 2 of 2: two-2.0.jar"]
    assert fetch([ONE, TWO], tmp_path, messages.append, repository) == paths
    assert repository.fetched == ["one-1.0.jar", "two-2.0.jar"]


def test_a_truncated_jar_is_fetched_again(tmp_path: Path) -> None:
    repository = Repository()
    (path,) = fetch([ONE], tmp_path, str, repository)
    path.write_bytes(RIGHT[:2])
    fetch([ONE, TWO], tmp_path, str, repository)
    assert path.read_bytes() == RIGHT
    assert repository.fetched == ["one-1.0.jar", "one-1.0.jar", "two-2.0.jar"]


def test_a_jar_with_a_wrong_checksum_is_refused_and_removed(tmp_path: Path) -> None:
    with pytest.raises(Unobtainable, match=r"one-1\.0\.jar was fetched, and is not the file"):
        fetch([ONE], tmp_path, str, Repository(b"evil"))
    assert not ONE.path(tmp_path).exists()


def test_without_a_network_the_error_says_what_to_do(tmp_path: Path) -> None:
    def fail(jar: Jar, cache: Path) -> None:
        jar.path(cache).parent.mkdir(parents=True)
        jar.path(cache).write_bytes(RIGHT[:1])
        raise OSError("the cable is cut")

    with pytest.raises(Unobtainable, match="the cable is cut\nTry again when the network is there"):
        fetch([ONE], tmp_path, str, fail)
    assert not ONE.path(tmp_path).exists()


def test_the_cache_is_in_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "elsewhere")
    assert cache() == Path("elsewhere/sunshower/jars")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache() == Path.home() / ".cache/sunshower/jars"


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)
def test_every_lock_file_names_its_roots_and_no_jar_twice(release: Release) -> None:
    jars = read_lock(release)
    coordinates = [f"{jar.group}:{jar.artifact}:{jar.version}" for jar in jars]
    assert {*release.roots} <= {*coordinates}
    assert len({(jar.group, jar.artifact) for jar in jars}) == len(jars)
    assert all(len(jar.sha256) == 64 for jar in jars)
    assert not [
        coordinate
        for coordinate in coordinates
        if release.without and coordinate.startswith(release.without)
    ]
