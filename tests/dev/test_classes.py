"""Java's class data archives: made at the first start, used from the second on, never required."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sunshower.dev import servers
from sunshower.dev.jars import ZOOKEEPER, class_path
from sunshower.dev.servers import Upkeep, archive_of, find_java
from sunshower.dev.zookeeper import ZooKeeper

ONCE = "archiving the classes, once: the next start takes about half the time"


@pytest.fixture(autouse=True)
def _no_archive_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "cache", lambda: tmp_path / "jars")


def is_used(path: Path, server: ZooKeeper) -> bool:
    return str(path) in Path(f"/proc/{server.pid}/maps").read_text()


def test_the_first_start_makes_an_archive_and_the_second_uses_it(
    releases: None, tmp_path: Path
) -> None:
    messages: list[str] = []
    upkeep = Upkeep(folder=tmp_path / "data", keep=True, look=messages.append)
    with ZooKeeper(upkeep) as first:
        (path,) = (tmp_path / "classes").glob("*.jsa")
        assert path.name.startswith("zookeeper-3.9.5-")
        assert not is_used(path, first)
    assert ONCE in messages
    assert not list((tmp_path / "data").glob("*.classes"))
    messages.clear()
    with ZooKeeper(upkeep) as second:
        assert is_used(path, second)
    assert ONCE not in messages


def test_a_java_that_cannot_make_an_archive_tries_once_and_runs_without_it(
    releases: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "poor"
    java = home / "bin/java"
    java.parent.mkdir(parents=True)
    refuses = 'case "$*" in *-Xshare:dump*) exit 1;; esac'
    java.write_text(f'#!/bin/sh\n{refuses}\nexec {find_java()} "$@"\n')
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    messages: list[str] = []
    for _ in range(2):
        with ZooKeeper(Upkeep(look=messages.append)) as server:
            assert server.pid
    assert messages.count(ONCE) == 1
    (path,) = (tmp_path / "classes").glob("*.jsa")
    assert path.stat().st_size == 0


def test_changed_jars_have_another_archive(releases: None, tmp_path: Path) -> None:
    java, jars = find_java(), class_path(ZOOKEEPER, print)
    more = tmp_path / "more.jar"
    more.write_bytes(b"")
    before = archive_of(ZOOKEEPER, java, os.pathsep.join([jars, str(more)])).path
    assert before == archive_of(ZOOKEEPER, java, os.pathsep.join([jars, str(more)])).path
    more.write_bytes(b"changed")
    after = archive_of(ZOOKEEPER, java, os.pathsep.join([jars, str(more)])).path
    assert len({before, after, archive_of(ZOOKEEPER, java, jars).path}) == 3
