"""Without servers, their tests are skipped; if CI is set, they fail."""

from __future__ import annotations

import pytest

from sunshower.errors import Unobtainable
from tests.servers import obtain


def test_a_test_whose_servers_are_missing_is_skipped_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JAVA_HOME", "nowhere")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no real servers here: JAVA_HOME is nowhere"):
        obtain()


def test_in_ci_missing_servers_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "nowhere")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(Unobtainable, match="JAVA_HOME is nowhere"):
        obtain()
