"""The count of the functions that a tuple enters on its way."""

from __future__ import annotations

import pytest

from benchmarks import journey


def test_the_way_of_a_tuple_leads_through_spout_bolt_and_acker(
    capsys: pytest.CaptureFixture[str],
) -> None:
    journey.main([])
    assert "functions in" in capsys.readouterr().out
    names = {name for _, name, _ in journey.entered}
    assert {
        "OutputStreams.send",
        "BoltTask.settle",
        "AckerTask.apply",
        "SpoutTask.complete",
    } <= names
