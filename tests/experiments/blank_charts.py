"""Replaces the charts of a run by blank ones: drawing takes longer than the rest of a run."""

from __future__ import annotations

import pytest

from sunshower.experiments.report import drawing
from sunshower.experiments.report.drawing import Chart


@pytest.fixture
def drawn() -> None:
    """A test that requests this fixture gets drawn charts instead of blank ones."""


@pytest.fixture(autouse=True)
def blank_charts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all charts of a run blank. The tests of charts are in tests/experiments/report."""
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr(drawing, "draw", _blank)


def _blank(name: str, caption: str, paint: object) -> Chart:
    return Chart(name, caption, '<svg viewBox="0 0 1 1"></svg>', b"")
