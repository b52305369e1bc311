"""Runs all stages without a mutant: with random faults no check fails."""

from __future__ import annotations

import pytest

from tests.mutants.stages import STAGES
from tests.mutants.stress import stress


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("count", [2, pytest.param(50, marks=pytest.mark.long)])
def test_without_a_mutant_all_checks_hold(stage: str, count: int) -> None:
    results = [stress(stage, seed) for seed in range(count)]
    broken = {seed: result.reasons for seed, result in enumerate(results) if result.wrong}
    assert not broken, f"seeds of stage {stage!r}, and the reasons: {broken}"
    proved = sum(result.proved for result in results)
    assert proved >= count // 2, f"of {count} runs only {proved} had a fault that took effect"
