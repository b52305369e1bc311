"""A batch group without faults counts each row once, and all its stages receive the results."""

from __future__ import annotations

import pytest

from sunshower.clock import ManualClock
from sunshower.runtime.inline import run_inline
from tests.trident.rigs.group_rig import Hook, Numbers, OpaqueNumbers, Rig


@pytest.mark.parametrize("max_batches", [1, 3])
@pytest.mark.parametrize("spout", [Numbers(20, 3), OpaqueNumbers(20, 3, Hook())])
def test_every_number_is_counted_once(spout: Numbers, max_batches: int) -> None:
    rig = Rig(spout, max_batches=max_batches, emitters=2 if spout.kind.value != "opaque" else 1)
    run_inline(rig.topology(check_mutation=True).graph(), clock=ManualClock(), steps_max=20_000)
    rig.check()
    assert sum(rig.tally.seen.values()) == 20
