"""Partitioned spouts in whole topologies in the simulator, while their processes are killed."""

from __future__ import annotations

from collections import Counter

import pytest

from sunshower.clock import ManualClock
from sunshower.runtime.inline import run_inline
from sunshower.runtime.plan import Layout
from sunshower.simulation.cluster import SimCluster
from sunshower.simulation.worker import Killed
from sunshower.trident.declaration.declare import as_trident_spout
from tests.trident.rigs.group_rig import KEYS, Rig, Row
from tests.trident.rigs.group_steps import Steps, Watched
from tests.trident.rigs.numbers import OpaqueRowBatches, RowBatches
from tests.trident.rigs.programs import SETTINGS

TOTAL = 40
ROWS = [Row(number % KEYS, number) for number in range(TOTAL)]
KINDS = {"transactional": RowBatches, "opaque": OpaqueRowBatches}


def die() -> None:
    raise Killed


def rig_of(kind: str, steps: Steps, max_batches: int) -> Rig:
    spout = as_trident_spout(KINDS[kind](ROWS, 3, partitions=4))
    return Rig(spout, steps, Watched(steps), max_batches)


def all_steps(kind: str) -> list[str]:
    steps = Steps()
    rig = rig_of(kind, steps, 3)
    run_inline(rig.topology().graph(), clock=ManualClock(), steps_max=50_000)
    assert rig.database.counts == Counter(range(TOTAL))
    return sorted(steps.seen)


STEPS = {kind: all_steps(kind) for kind in KINDS}


@pytest.mark.parametrize(("kind", "step"), [(k, step) for k in STEPS for step in STEPS[k]])
def test_each_row_is_counted_once_when_a_process_dies_at_any_step(kind: str, step: str) -> None:
    steps = Steps(step, 2, die)
    rig = rig_of(kind, steps, 3)
    layout = Layout.ISOLATE if len(step) % 2 else Layout.PACK
    run = SimCluster(len(step), check=True).submit(rig.topology(**SETTINGS).graph(), layout)
    assert run.wait(300.0), run._describe()
    assert rig.database.counts == Counter(range(TOTAL))
