"""States of batches that move to other numbers of tasks, wherever a run has ended before."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from sunshower.state import MemoryState, SqliteState
from sunshower.topologies.operators.states import StateKind
from tests.seeds import seeds
from tests.trident.rigs.moving_states import STATES, Life, MovingProgram

KINDS = [
    (True, StateKind.OPAQUE),
    (False, StateKind.OPAQUE),
    (False, StateKind.TRANSACTIONAL),
]


def tasks_of(draw: Random) -> dict[str, int]:
    return {name: draw.choice((1, 2, 3)) for name in STATES}


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize(("is_opaque", "kind"), KINDS)
@seeds(100)
def test_runs_with_other_numbers_of_tasks_that_end_anywhere_count_each_row_once(
    seed: int, is_opaque: bool, kind: StateKind, store: str, tmp_path: Path
) -> None:
    def state(name: str, kind: StateKind) -> Any:
        if store == "memory":
            return MemoryState(kind, name)
        return SqliteState(tmp_path / "states.db", kind, name)

    plain = MovingProgram(seed, is_opaque, kind, lambda name, kind: MemoryState(kind, name))
    assert plain.run(Life(), dict.fromkeys(STATES, 1))
    program, draw = MovingProgram(seed, is_opaque, kind, state), Random(seed)
    ends = 0
    for _ in range(8):
        life = Life(draw.randrange(1, 80), draw.random() < 0.5)
        ends += not program.run(life, tasks_of(draw))
    assert program.run(Life(), tasks_of(draw))
    assert ends
    assert program.outcome() == plain.outcome()
