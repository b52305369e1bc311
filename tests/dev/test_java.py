"""Which Java runs the servers, and the error if there is none."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from sunshower.dev.servers import find_java
from sunshower.errors import Unobtainable
from sunshower.installed import install_command


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == java


def test_a_java_home_without_java_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(Unobtainable, match=r"no bin/java in it. Unset it"):
        find_java()


def test_without_any_java_the_error_names_the_package_that_contains_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(Unobtainable, match=re.escape(install_command("servers"))):
        find_java()
