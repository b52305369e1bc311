"""Page, terminal, JSON and metrics say the same of one snapshot: whether a topology keeps up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sunshower.cli.formatting import Terminal
from sunshower.cli.health import failure_lines
from sunshower.cli.statistics import status_fields
from sunshower.cli.status import topology_frame
from sunshower.cli.ui.source import summary_facts, topology_facts
from sunshower.runtime.control.measures import MEASURES, Observed
from sunshower.runtime.control.overview import Overview
from tests.web.prepared import Prepared, batches_of_words, late, quiet, shop

UP_S = 7_440.0


def overview_of(prepared: Prepared) -> Overview:
    prepared.overview(UP_S - 1.0)
    return prepared.overview(UP_S)


def frame_of(overview: Overview, *, internals: bool = False) -> str:
    console = Terminal(width=200)
    with console.capture() as capture:
        console.print(topology_frame(overview, UP_S, "1m", internals=internals))
    return capture.get()


def metrics_of(overview: Overview) -> dict[tuple[str, ...], object]:
    observed = Observed("topology", overview)
    return {
        (measure.name, *labels): value
        for measure in MEASURES
        for labels, value in measure.read(observed)
    }


@pytest.mark.parametrize("prepare", [late, shop, quiet, batches_of_words])
def test_all_surfaces_say_the_same(prepare: Callable[[], Prepared]) -> None:
    overview = overview_of(prepare())
    progress = overview.snapshot.progress
    assert progress is not None
    fields = status_fields(overview, UP_S)["progress"]
    page = topology_facts(overview, UP_S)["progress"]
    text, metrics = frame_of(overview), metrics_of(overview)
    assert fields == page
    assert progress.limit.text in text
    assert metrics["limited", progress.limit.kind.value] == 1.0
    assert sum(value == 1.0 for (name, *_), value in metrics.items() if name == "limited") == 1
    assert len(fields["sources"]) == len(progress.sources)
    for source in fields["sources"]:
        assert source["trend"] in text
        assert f"{source['lag']:,.0f} records behind" in text
        assert metrics["lag_records", source["component"]] == source["lag"]
        assert metrics["falls_behind", source["component"]] == float(source["falls_behind"])
        assert metrics["lag_growth", source["component"]] == source["growth"]
    summary = summary_facts("topology", overview, UP_S)
    assert ("falls behind" in summary["marks"]) is any(s["falls_behind"] for s in fields["sources"])
    assert summary["limit"] == progress.limit.text
    history = topology_facts(overview, UP_S)["history"]
    assert {len(values) for values in history.values()} == {len(history["ago_s"])}


def test_what_waits_is_no_bottleneck_and_the_reason_is_in_words() -> None:
    fields = status_fields(overview_of(shop()), UP_S)["progress"]
    assert fields["limit"]["component"] == "store"
    assert fields["bottleneck"] == "recommend"


def test_failures_have_two_lines_for_each_group() -> None:
    overview = overview_of(shop())
    lines = [*failure_lines(overview.snapshot)]
    groups = status_fields(overview, UP_S)["failures"]
    assert len(lines) == 2 * len(groups) == 4
    for group, first, second in zip(groups, lines[::2], lines[1::2], strict=True):
        assert f"{group['count']:,} failed" in first
        assert group["message"] in first
        assert group["example"]["record"] in second
        assert group["cause"] in second


def test_coordinators_are_shown_on_request() -> None:
    overview = overview_of(batches_of_words())
    assert "$mastercoord" not in frame_of(overview)
    assert "$mastercoord-" in frame_of(overview, internals=True)
    assert " 1,200 " in frame_of(overview), "rows, not batches, a second"
    (group,) = status_fields(overview, UP_S)["batches"]
    assert [batch["txid"] for batch in group["recent"]] == [*range(9, 17)]


def test_a_name_that_is_too_long_is_not_broken_and_no_number_is_cut() -> None:
    console = Terminal(width=80)
    with console.capture() as capture:
        console.print(topology_frame(overview_of(late()), UP_S, "1m"))
    table = capture.get().partition("why is it not faster?")[0]
    assert "geo-lookup" in table
    for number in ("4,000", "capacity", "wait p99"):
        assert number in table
