"""Whatever fails, no row of batches is late that was written in time; each counts exactly once."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.simulated.stage_chains import by_place
from sunshower.errors import TopologyFailed
from sunshower.trident.states.stored_map import StoredMap
from tests.seeds import seed_ranges
from tests.topologies.operators.windows.event_time_swarm import (
    DISTURBANCES,
    late_counts,
    run_program,
)
from tests.trident.rigs.event_time_batches import BatchProgram, BatchStageProgram, numbers_in


@seed_ranges(2_000, few=100, size=25)
def test_no_failure_makes_a_row_of_a_batch_late(seeds: range) -> None:
    """Transactional and opaque sources whose partitions differ in density, are silent, away and
    added; kills, repeated batches, catch-up, and ends of some sources. Windows, sessions, windows
    that are updated, and windows behind them."""
    happened = Counter[str]()
    for seed in seeds:
        program = BatchProgram(seed)
        run = run_program(program)
        windows, late = numbers_in(program.windows), numbers_in(program.late)
        assert {*late} - program.too_old == set(), f"seed {seed}"
        assert not numbers_in(program.too_late), f"seed {seed}"
        assert windows + late == Counter(program.on_time | program.too_old), f"seed {seed}"
        ordered, unordered = numbers_in(program.ordered), numbers_in(program.unordered)
        assert {*unordered} - program.too_old == set(), f"seed {seed}"
        assert ordered + unordered == Counter(program.on_time | program.too_old), f"seed {seed}"
        counted, is_complete = late_counts(program, run)
        assert counted >= len(late) or not is_complete, f"seed {seed}"
        happened += program.happened
    assert DISTURBANCES - happened.keys() == set()


@seed_ranges(2_000, few=200, size=40)
def test_chains_of_stages_have_each_row_once(seeds: range) -> None:
    """Two to four stages of all kinds, behind such sources, and behind each other; with deaths,
    repeated batches, other numbers of tasks, new code, workers that continue after they were
    replaced, and a store that loses answers and writes late or twice."""
    happened = judge_all(seeds)
    assert {*BatchStageProgram(0).faults} - happened.keys() == set()


def judge_all(seeds: range) -> Counter[str]:
    """Returns how often each disturbance has happened."""
    return sum((judge(seed).happened for seed in seeds), Counter[str]())


def judge(seed: int) -> BatchStageProgram:
    """Run a program. Raises AssertionError for other rows than those of a plain program."""
    program = BatchStageProgram(seed)
    run_program(program)
    rows, last = program.written(), program.last
    about = f"seed {seed}: {' → '.join(program.kinds)}, late: {program.late()}"
    assert last is not None
    assert by_place(rows) == program.expected(), about
    if not (last.is_update or program.too_old):
        assert Counter(rows) == Counter(last.rows()), about
    return program


def test_a_state_that_does_not_undo_earlier_attempts_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(StoredMap, "_undone", lambda *_: {})
    with pytest.raises((AssertionError, TopologyFailed)):
        judge_all(range(2, 12, 3))  # with an unsure store from the beginning on
