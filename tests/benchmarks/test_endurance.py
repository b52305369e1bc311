"""Endurance runs: lost tuples, the effects of kills, the choice of victims, targets, tables."""

from __future__ import annotations

import io
import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from benchmarks.endurance import groups
from benchmarks.endurance.__main__ import NAMES, arguments
from benchmarks.endurance.deliveries import DeliveryTimes, Kill, by_kind, causes
from benchmarks.endurance.kills import KINDS, draw_victims, victims
from benchmarks.endurance.load import STEP_S, Source, figures
from benchmarks.endurance.programs import PROGRAMS, Declaration
from benchmarks.endurance.row_files import CAUSES, ROW, RowFile, Rows, read_rows
from benchmarks.endurance.tables import tables
from benchmarks.endurance.targets import TARGETS, judge_all
from benchmarks.endurance.topologies import chaos_topology
from benchmarks.simulated.stage_chains import by_place
from benchmarks.start_signal import StartSignal
from sunshower import Cause, Context
from sunshower.runtime.plan import Layout, Plan, make_plan

S = 10**9


def rows(*pairs: tuple[int, float]) -> Rows:
    """(number, seconds) of each."""
    return np.array([(number, int(seconds * S), 0) for number, seconds in pairs], ROW)


def deliveries(total: int, emitted: Rows, acked: Rows, sunk: Rows | None = None) -> DeliveryTimes:
    return DeliveryTimes.of(total, emitted, acked if sunk is None else sunk, acked)


def a_plan(folder: Path, layout: Layout) -> Plan:
    return make_plan(chaos_topology(StartSignal(folder), folder, 20_000, 40_000).graph(), layout)


# ---- delivery times -----------------------------------------------------------------------------


def test_a_tuple_that_was_not_acked_or_not_written_by_a_sink_is_lost() -> None:
    emitted = rows((0, 0), (1, 0), (2, 0))
    result = deliveries(3, emitted, acked=rows((0, 1), (1, 1)), sunk=rows((0, 1), (2, 1)))
    assert result.lost == 2


def test_a_tuple_that_was_not_emitted_is_lost() -> None:
    assert deliveries(3, rows((0, 0)), rows((0, 1))).lost == 2


def test_an_ack_before_a_sink_has_written_the_tuple_is_counted() -> None:
    emitted = rows((0, 0), (1, 0))
    result = deliveries(2, emitted, acked=rows((0, 2), (1, 2)), sunk=rows((0, 1), (1, 3)))
    assert (result.lost, result.acked_early) == (0, 1)


def test_the_first_time_of_a_tuple_counts_and_further_rows_of_the_sink_are_duplicates() -> None:
    emitted, twice = rows((0, 0), (0, 5)), rows((0, 9), (0, 1), (0, 3))
    result = deliveries(1, emitted, acked=rows((0, 10), (0, 2)), sunk=twice)
    assert result.duplicates == 2
    assert result.sunk.tolist() == [1 * S]
    assert result.rate == 1 / 2


def test_the_effect_of_a_kill_lasts_until_the_last_tuple_that_was_open_is_acked() -> None:
    emitted = rows((0, 0), (1, 1), (2, 1), (3, 9))
    result = deliveries(4, emitted, acked=rows((0, 1.5), (1, 4), (2, 6.5), (3, 99)))
    effect = result.effect_of(Kill("bolt", "relay[0]", 2 * S))
    assert (effect.touched, effect.seconds) == (2, 4.5)


def test_tuples_emitted_before_the_successor_has_registered_are_touched() -> None:
    emitted = rows((0, 2.5), (1, 3.5))
    result = deliveries(2, emitted, acked=rows((0, 5), (1, 99)))
    effect = result.effect_of(Kill("bolt", "relay[0]", 2 * S, back_s=1.0))
    assert (effect.touched, effect.seconds) == (1, 3.0)


def test_a_kill_that_touches_no_tuple_has_no_effect() -> None:
    effect = deliveries(1, rows((0, 0)), rows((0, 1))).effect_of(Kill("bolt", "relay[0]", 2 * S))
    assert (effect.touched, effect.seconds) == (0, 0.0)


def test_the_effect_of_a_kill_whose_tuple_is_never_acked_is_infinite() -> None:
    effect = deliveries(1, rows((0, 0)), rows()).effect_of(Kill("bolt", "relay[0]", 2 * S))
    assert effect.seconds == np.inf


def test_each_kind_of_victim_has_a_median_and_a_worst_effect() -> None:
    result = deliveries(3, rows((0, 0), (1, 0), (2, 0)), rows((0, 3), (1, 4), (2, 9)))
    kills = [Kill("bolt", "x", at * S, back_s=1.0) for at in (1, 3, 5)]
    (row,) = by_kind(map(result.effect_of, kills))
    assert (row["victim"], row["kills"], row["back_s"]) == ("bolt", 3, 1.0)
    assert (row["median_s"], row["worst_s"]) == (6.0, 8.0)


def test_failures_are_counted_by_cause() -> None:
    died, late = CAUSES.index(Cause.ACTOR_DIED), CAUSES.index(Cause.TIMEOUT)
    failures = np.array([(0, 0, died), (1, 0, died), (0, 1, late)], ROW)
    assert causes(failures) == {"actor died": 2, "timeout": 1}


# ---- row files ----------------------------------------------------------------------------------


def test_rows_of_one_kind_are_read_from_the_files_of_all_lives(tmp_path: Path) -> None:
    context = Context("t", "sink", 1, 0, 1)
    for numbers in ([1, 2], [2, 3]):
        RowFile(tmp_path, "sunk", context).write_all(numbers)
    RowFile(tmp_path, "acked", context).write(7, detail=5)
    assert sorted(read_rows(tmp_path, "sunk")["number"].tolist()) == [1, 2, 2, 3]
    (row,) = read_rows(tmp_path, "acked")
    assert (row["number"], row["detail"]) == (7, 5)
    assert len(read_rows(tmp_path, "failed")) == 0


# ---- victims ------------------------------------------------------------------------------------


def test_isolated_actors_have_kinds_of_components_and_packed_ones_are_workers(
    tmp_path: Path,
) -> None:
    isolated = victims(a_plan(tmp_path, Layout.ISOLATE), KINDS)
    kinds = [victim.kind for victim in isolated]
    counts = {"master": 1, "spout": 2, "bolt": 4, "acker": 2}
    assert {kind: kinds.count(kind) for kind in kinds} == counts
    packed = victims(a_plan(tmp_path, Layout.PACK), KINDS)
    assert [victim.kind for victim in packed] == ["master", "worker", "worker"]


def test_the_same_seed_draws_the_same_victims_and_each_victim_is_drawn(tmp_path: Path) -> None:
    tasks = victims(a_plan(tmp_path, Layout.ISOLATE), ["bolt", "spout", "acker"])

    def first(seed: int, count: int) -> list[Any]:
        return list(islice(draw_victims(tasks, np.random.default_rng(seed)), count))

    assert first(1, 30) == first(1, 30) != first(2, 30)
    assert {victim.kind for victim in first(3, 3)} == {"bolt", "spout", "acker"}
    assert set(first(4, 100)) == set(tasks)


def test_without_victims_none_is_drawn() -> None:
    assert list(draw_victims([], np.random.default_rng(1))) == []


# ---- targets and tables -------------------------------------------------------------------------

RUN = {
    "layout": "pack",
    "tuples": 9,
    "lost": 1,
    "acked_early": 0,
    "quarantined": 0,
    "dead_letters": 0,
    "rate": 5,
    "timeouts": 0,
    "replays": 2,
    "duplicates": 3,
    "failures": {"actor died": 2},
    "victims": [
        {"victim": "x", "kills": 1, "touched": 4, "back_s": None, "median_s": 6.0, "worst_s": 7.0}
    ],
}
SLOW = {
    "timeouts": 0,
    "replays": 0,
    "of_bound": 0.5,
    "bound_mib": 14.0,
    "memory_mib": {"sink": {"start": 1.0, "peak": 8.0}},
}
STEPS = [
    {"load": 0.6, "tasks": 1, "workers": 1, "changes": [], "lag_s": 0.2},
    {"load": 1.2, "tasks": 2, "workers": 2, "changes": [[31.0, "1 → 2 tasks"]], "lag_s": 0.3},
    {"load": 1.2, "tasks": 2, "workers": 2, "changes": [], "lag_s": 11.0},
    {"load": 0.6, "tasks": 1, "workers": 1, "changes": [[59.0, "2 → 1 tasks"]], "lag_s": 0.1},
]
POISON = {"wrong": 0, "rate": 0.9, "clean": [10], "poisoned": [9]}
REPORT = {"chaos": {"pack": RUN}, "slow": SLOW, "poison": POISON}


def test_targets_are_judged_by_the_worst_kind_and_missing_figures_have_no_verdict() -> None:
    verdicts = {target["figure"]: target["met"] for target in judge_all(REPORT)}
    assert verdicts["chaos/pack/lost"] is verdicts["chaos/pack/median_s"] is False
    assert verdicts["chaos/pack/worst_s"] is verdicts["slow/of_bound"] is True
    assert verdicts["poison/rate"] is False
    assert verdicts["chaos/isolate/lost"] is None
    assert len(verdicts) == len(TARGETS)


def test_the_tables_show_every_part() -> None:
    console = Console(file=io.StringIO(), width=160)
    console.print(tables({**REPORT, "targets": judge_all(REPORT)}))
    shown = console.file.getvalue()
    for text in ("Killed, layout pack", "2 actor died", "resident", "poisoned", "missed by 20%"):
        assert text in shown


def test_all_experiments_run_unless_some_are_named() -> None:
    assert arguments([]).what == list(NAMES)
    assert arguments(["slow"]).what == ["slow"]
    assert arguments(["load"]).what == ["load"], "half an hour, only by its name"


@pytest.mark.parametrize("in_batches", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_program_over_event_time_has_rows(
    name: str, tmp_path: Path, *, in_batches: bool
) -> None:
    declared = Declaration(name, tmp_path, StartSignal(tmp_path), 15.0, 1, in_batches)
    topology, last = declared.topology()
    new, _ = declared.topology(is_new=True)
    former, others = (
        [component.parallelism for component in declared.graph().components.values()]
        for declared in (topology, new)
    )
    assert former != others
    assert by_place(last.rows())


def test_the_programs_over_event_time_are_shown() -> None:
    run = {"name": "two streams", "stages": "a → b", "kills": 7, "rows": 9, "missing": 1}
    report = {
        "programs": {"missing": 1, "each": [run | {"upgrades": 1, "repeated": 0, "other": 2}]}
    }
    targets = {target["figure"]: target["met"] for target in judge_all(report)}
    assert targets["programs/missing"] is False
    console = Console(file=io.StringIO(), width=160)
    console.print(tables({**report, "targets": []}))
    assert "two streams" in console.file.getvalue()


# ---- groups -------------------------------------------------------------------------------------


def test_each_session_has_two_events_unless_it_is_one_of_the_first() -> None:
    between = groups.PAUSE_S * groups.RATE
    for number in (0, 2, 10_000, 2 * between):
        first, last = groups.event(number), groups.event(number + 1 + between)
        assert first.session == last.session >= 0
        assert last.at - first.at == groups.PAUSE_S * 1_000
    assert groups.event(between - 1).session < 0


def test_the_end_of_a_run_of_sessions_is_compared_with_its_beginning() -> None:
    samples = [{"batches": 100 * at, "batch_s": 0.1 * at, "mib": 500 + at} for at in range(1, 9)]
    growth = groups.figures(samples, before=400)
    assert (growth["batch_s"], growth["slower"]) == pytest.approx((0.8, 1.6))
    assert (growth["mib"], growth["larger"]) == (508, round(508 / 505, 3))
    run = {"open": 1_000_000, "ended": 7, "lost": 0, **growth}
    targets = {target["figure"]: target["met"] for target in judge_all({"groups": run})}
    assert targets["groups/slower"] is False
    assert targets["groups/larger"] is targets["groups/lost"] is True
    console = Console(file=io.StringIO(), width=160)
    console.print(tables({"groups": run, "targets": []}))
    assert "1,000,000 open" in console.file.getvalue()


# ---- load ---------------------------------------------------------------------------------------


def log_of(folder: Path, processed: str) -> Source:
    """A log of four records."""
    source = Source(folder)
    with source.open_done() as file:
        file.write(processed)
    (folder / "rates").write_text(json.dumps([(0.0, 4.0), (1.0, 0.0)]))
    assert source.added() == 4
    return source


def test_lost_records_and_those_processed_twice_are_counted(tmp_path: Path) -> None:
    result = figures(STEPS, [log_of(tmp_path, "0\n3\n1\n3\n")])
    assert (result["records"], result["lost"], result["twice"]) == (4, 1, 1)


def test_only_steps_that_need_other_tasks_have_to_decide(tmp_path: Path) -> None:
    source = log_of(tmp_path, "0\n1\n2\n3\n")
    result = figures(STEPS, [source])
    assert (result["decided_s"], result["lag_s"], result["changes"]) == (59.0, 11.0, 1)
    late = figures([STEPS[0], STEPS[1] | {"changes": []}], [source])
    assert late["decided_s"] == STEP_S, "it has not decided"
    targets = {target["figure"]: target["met"] for target in judge_all({"load": result})}
    assert targets["load/decided_s"] is True
    assert targets["load/lag_s"] is False


def test_the_steps_of_a_load_are_shown() -> None:
    console = Console(file=io.StringIO(), width=160)
    console.print(tables({"load": {"steps": STEPS}, "targets": []}))
    assert "31.0  1 → 2 tasks" in console.file.getvalue()


@pytest.mark.parametrize("wrong", [["--seconds=1"], ["storm"], ["--victims", "cat"]])
def test_a_wrong_option_is_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(wrong)
    assert "usage:" in capsys.readouterr().err
