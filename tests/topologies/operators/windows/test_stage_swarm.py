"""Under random faults, chains of windows, joins and timers make what a plain program makes."""

from __future__ import annotations

from tests.seeds import seeds
from tests.topologies.operators.windows.event_time_swarm import run_program
from tests.topologies.operators.windows.stage_swarm import StageProgram, written


@seeds(2000, kinds=12)
def test_no_row_is_missing_behind_several_stages(seed: int) -> None:
    program = StageProgram(seed)
    run = run_program(program)
    made, late = (written(run, kind, program.too_old) for kind in ("row", "late"))
    expected = program.expected()
    missing = {place: ids for place, ids in expected.items() if not made.get(place, set()) >= ids}
    assert not missing, f"seed {seed}, late: {late}"
    assert made == expected, f"seed {seed}"
