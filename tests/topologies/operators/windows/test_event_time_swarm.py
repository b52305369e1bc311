"""Whatever fails, no record is late that was written in time, and each late one is counted."""

from __future__ import annotations

from collections import Counter

from tests.seeds import seed_ranges
from tests.topologies.operators.windows.event_time_swarm import (
    DISTURBANCES,
    EventProgram,
    late_counts,
    numbers_of,
    run_program,
)


@seed_ranges(2_000, few=100, size=25)
def test_no_failure_makes_a_record_late(seeds: range) -> None:
    """Sources whose partitions differ in density, are silent, away, added and moved; kills,
    replays, catch-up, and ends of some sources."""
    happened = Counter[str]()
    for seed in seeds:
        program = EventProgram(seed)
        run = run_program(program)
        windows, late = numbers_of(run, "window"), numbers_of(run, "late")
        assert program.on_time - windows == set(), f"seed {seed}"
        assert program.too_old - windows - late == set(), f"seed {seed}"
        counted, is_complete = late_counts(program, run)
        assert counted >= len(late) or not is_complete, f"seed {seed}"
        happened += program.happened
    assert DISTURBANCES - happened.keys() == set()
