"""Under random faults, chains of stages over event time make what a plain program makes."""

from __future__ import annotations

from collections import Counter

from benchmarks.simulated.stage_chains import FAMILY_OF, PAIRS
from tests.seeds import seed_ranges
from tests.topologies.operators.windows.event_time_swarm import run_program
from tests.topologies.operators.windows.stage_swarm import StageProgram, neighbours, written

PROGRAMS = 2_000
PAIRS_LEAST = 50  # how often each pair of neighbouring families occurs in them


@seed_ranges(PROGRAMS, few=200, size=20)
def test_no_row_is_missing_behind_several_stages(seeds: range) -> None:
    for seed in seeds:
        program = StageProgram(seed)
        run = run_program(program)
        rows, late = (written(run, kind, program.too_old) for kind in ("row", "late"))
        expected, about = program.expected(), f"seed {seed}: {' → '.join(program.kinds)}"
        missing = {at: ids for at, ids in expected.items() if not rows.get(at, set()) >= ids}
        assert not missing, f"{about}, late: {late}"
        assert rows == expected, about


def test_the_programs_have_each_pair_of_neighbouring_stages() -> None:
    """Run it with -s to see the counts."""
    kinds = neighbours(range(PROGRAMS))
    families = Counter[tuple[str, str]]()
    for (kind, other), times in kinds.items():
        families[FAMILY_OF[kind], FAMILY_OF[other]] += times
    for pair in PAIRS:
        print(f"{' → '.join(pair)}: {families[pair]}")  # noqa: T201
    print(f"{len(kinds)} pairs of {len(FAMILY_OF)} kinds, {kinds.total()} together")  # noqa: T201
    assert min(families[pair] for pair in PAIRS) >= PAIRS_LEAST
    assert families.keys() == {*PAIRS}
