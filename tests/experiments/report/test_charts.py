"""Tests of the charts: valid for any data, and readable without colour."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from io import BytesIO
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from PIL import Image

from sunshower.experiments.event_history import Band, History
from sunshower.experiments.outcome import Recovery, Verdict
from sunshower.experiments.report.drawing import (
    FILLS,
    HATCHES,
    MARKS,
    TONES,
    Chart,
    Point,
    columns_of,
    covered,
    fault_rows,
    height_of,
    longest,
    make_series,
    point,
    recovery_chart,
    sweep_chart,
    timeline,
    topology_chart,
)
from sunshower.runtime.events.event_log import What
from tests.experiments.report.samples import history, outcome
from tests.experiments.scripts import Script

SVG = "{http://www.w3.org/2000/svg}svg"


def check(chart: Chart) -> None:
    """The SVG is well-formed, and the picture is large enough and not blank."""
    assert ET.fromstring(chart.svg).tag == SVG
    with Image.open(BytesIO(chart.png)) as image:
        assert image.width >= 1200
        assert len(image.convert("L").getcolors() or []) > 2
    assert "http" not in chart.element


GRAPH = {
    "numbers": {"tasks": 1, "reads": []},
    "a-component-with-a-very-long-name-of-many-words": {"tasks": 4, "reads": [["numbers", "all"]]},
    "loop": {"tasks": 2, "reads": [["late", "shuffle"], ["numbers", "fields(<key> & more)"]]},
    "late": {"tasks": 2, "reads": [["loop", "shuffle"]]},
}


def test_a_topology_is_drawn_in_columns_also_with_a_cycle() -> None:
    assert columns_of(GRAPH) == [["numbers"], [*GRAPH][1:3], ["late"]]
    check(topology_chart(GRAPH))
    many = {f"c{n}": {"tasks": 1, "reads": [[f"c{n - 1}", "all"]] if n else []} for n in range(12)}
    check(topology_chart(many))


def test_an_arrow_that_passes_a_component_is_bent_below_it() -> None:
    def height(reads: list[list[str]]) -> int:
        chain = {"a": [], "b": [["a", "shuffle"]], "c": [["b", "shuffle"], *reads]}
        graph = {id: {"tasks": 1, "reads": reads} for id, reads in chain.items()}
        with Image.open(BytesIO(topology_chart(graph).png)) as image:
            return image.height

    assert height([["a", "all"]]) > height([]) == height([["b", "all"]])


def three_events() -> History:
    return Script().emitted(1).fault().wait(2).completed(1).history()


def long_fault() -> History:
    return Script().whole(1).fault("pause b", for_s=2).history()


@pytest.mark.parametrize(
    "make_history",
    [
        pytest.param(lambda: History((), {}), id="nothing"),
        pytest.param(three_events, id="3 events"),
        pytest.param(long_fault, id="a long fault"),
        pytest.param(history, id="2,000 events"),
        pytest.param(lambda: history(faults=300), id="300 faults"),
        pytest.param(lambda: history(batches=1_000, batch=500), id="1,000,000 events"),
    ],
)
def test_a_time_line_is_drawn_of_few_events_and_of_many(
    make_history: Callable[[], History],
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns if something does not fit
        chart = timeline(make_series(make_history()))
    check(chart)
    assert len(chart.svg) < 2_000_000  # small enough to mail, however long the run was


def test_the_same_series_give_the_same_file() -> None:
    series = make_series(three_events())
    assert timeline(series).svg == timeline(series).svg


def test_charts_of_one_page_do_not_share_ids() -> None:
    charts = [timeline(make_series(three_events())), recovery_chart(outcome().recoveries)]
    ids = [set(re.findall(r'\sid="([^"]+)"', chart.element)) for chart in charts]
    assert all(ids)
    assert not ids[0] & ids[1]
    for chart, known in zip(charts, ids, strict=True):
        used = re.findall(r'(?:url\(#|href="#)([^")]+)', chart.element)
        assert set(used) <= known


def test_a_run_with_batches_has_a_panel_for_them() -> None:
    script = Script().emitted(1).wait(2)
    for txid in range(1, 30):
        facts = {"txid": txid, "attempt": 0, "epoch": 1}
        script.add(What.NOTED, 1, detail=("batch begun", facts)).wait(0.2)
        script.add(What.NOTED, 1, detail=("batch committed", facts))
    with_some, without = (
        timeline(make_series(recorded))
        for recorded in (script.completed(1).history(), three_events())
    )
    check(with_some)
    heights = [
        float(re.findall(r'viewBox="0 0 \S+ (\S+)"', chart.svg)[0])
        for chart in (with_some, without)
    ]
    assert heights[0] > heights[1]


def test_faults_with_the_same_words_share_a_row() -> None:
    bands = [Band("kill a", 1, 1), Band("pause b", 2, 3), Band("kill a", 4, 4)]
    assert fault_rows(bands) == {"kill a ×2": [bands[0], bands[2]], "pause b": [bands[1]]}


def test_many_faults_are_grouped_by_their_first_word() -> None:
    bands = [Band(f"kill task {number}", number, number) for number in range(40)]
    assert list(fault_rows([*bands, Band("pause x", 1, 2)])) == ["kill ×40", "pause"]


def test_too_many_kinds_of_faults_end_in_a_last_row() -> None:
    rows = fault_rows([Band(f"kind{number} x", number, number) for number in range(30)])
    assert len(rows) == 10
    assert len(rows["other faults ×21"]) == 21
    assert sum(map(len, rows.values())) == 30


def test_a_long_label_has_two_lines_and_no_more() -> None:
    words = "lossy relay → *: drop 0.1, delay 0.2 by 0.3 s for 5 s"
    (label,) = fault_rows([Band(words, 1, 2)])
    assert label.split("\n") == ["lossy relay → *: drop 0.1, delay", "0.2 by 0.3 s for 5 s"]
    (label,) = fault_rows([Band("drop " * 30, 1, 2)])
    assert label.count("\n") == 1
    assert max(map(len, label.split("\n"))) < 40
    assert label.endswith("…")


def test_shades_do_not_overlap() -> None:
    bands = [Band("a", 1, 3), Band("b", 2, 5), Band("c", 7, None), Band("kill", 6, 6)]
    assert covered(bands, 10.0) == [(1, 5), (7, 10.0)]


def test_an_axis_shows_all_unless_a_few_peaks_dwarf_the_rest() -> None:
    even = np.full(100, 300.0)
    assert height_of(even) == 300
    assert height_of(np.append(even, [900.0])) == 900
    assert height_of(np.append(even, [9_000.0])) == 1_200
    assert height_of(np.zeros(3)) == 0


def test_recovery_counts_from_the_end_of_a_fault() -> None:
    assert Recovery("pause", 1.0, 3.0, 3.5).seconds == 0.5
    assert Recovery("pause", 1.0, 3.0, None).seconds is None


def test_the_worst_recoveries_are_shown_in_the_order_of_time() -> None:
    all_recoveries = [Recovery(f"f{n}", n, n, n + n % 5) for n in range(50)]
    all_recoveries.append(Recovery("never", 60, 60, None))
    shown = longest(all_recoveries, 3)
    assert [recovery.fault for recovery in shown] == ["f4", "f9", "never"]


@pytest.mark.parametrize("recovered_s", [2.0, 3.5, None])
def test_recoveries_are_drawn_even_if_one_never_ends(recovered_s: float | None) -> None:
    check(recovery_chart(outcome(recovered_s=recovered_s).recoveries))


def test_a_sweep_is_drawn() -> None:
    verdicts = [Verdict.HOLDS, Verdict.HOLDS, Verdict.UNKNOWN, Verdict.BROKEN]
    runs = [outcome(verdict, seed=seed) for seed, verdict in enumerate(verdicts)]
    points = [point(run, ["timeout_s"]) for run in runs]
    check(sweep_chart(points, "timeout_s"))
    check(sweep_chart(points, "seed"))
    check(sweep_chart([Point({"seed": 0}, Verdict.UNKNOWN, None, False, None)], "seed"))


def test_a_point_records_whether_all_recovered() -> None:
    assert point(outcome(), ["timeout_s"]) == Point(
        {"timeout_s": 5.0, "seed": 7}, Verdict.BROKEN, 1.5, True, 199.9
    )
    assert not point(outcome(recovered_s=None), []).recovers


def test_no_information_is_only_in_colour() -> None:
    assert len(set(HATCHES)) == len(HATCHES) == len(FILLS)
    assert len(set(MARKS.values())) == len(set(TONES.values())) == len(Verdict)
