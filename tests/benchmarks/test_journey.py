"""The command that counts the functions which a tuple enters."""

from __future__ import annotations

import re

import pytest

from benchmarks import journey
from sunshower.record_loops import compiled
from tests.structure.reading import ROOT


@pytest.mark.skipif(not compiled, reason="the loops over records are not compiled")
def test_a_tuple_enters_spout_bolt_and_acker_and_the_page_has_the_counts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    journey.main([])
    counts = re.findall(r"\d+", capsys.readouterr().out)
    page = (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8")
    (row,) = re.findall(
        r"^\| the present one: .* \| (\d+) \| (\d+) \| (\d+) \|$", page, re.MULTILINE
    )
    assert counts == [*row]
    names = {name for _, name, _ in journey.entered}
    assert {
        "OutputStreams.send",
        "BoltTask.settle",
        "AckerTask.apply",
        "SpoutTask.complete",
    } <= names
