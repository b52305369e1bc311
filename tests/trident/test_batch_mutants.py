"""Mutants that break a rule of exactly once are found by random tests."""

from __future__ import annotations

from itertools import chain
from random import Random

import pytest

from tests.mutants.mutant import Defect, Mutant, defect
from tests.trident.coordination.test_batch_scheduler import Trial
from tests.trident.rigs.batch_swarm import judge

pytestmark = pytest.mark.mutants
SEEDS_MAX = 100


def mutant(
    name: str, about: str, *defects: Defect, on: str = "batches", seen: int | None = None
) -> Mutant:
    return Mutant(name, about, defects, (on,), seen)


def decide(seed: int) -> str:
    """Give the batch scheduler random events, and return what was wrong; empty if nothing was."""
    draw = Random(seed)
    trial = Trial(can_skip=False, interval_s=0.0)
    try:
        for _ in range(60):
            event = draw.choice(
                [("step",), ("step",), ("wait", 5.0)]
                + [(kind, draw.randint(0, 3), draw.randint(0, 1)) for kind in ("acked",) * 2]
                + [("failed", draw.randint(0, 3), draw.randint(0, 1), False)]
            )
            trial.event(event)
    except AssertionError as error:
        return f"wrong: {error}"
    return ""


JUDGES = {"batches": judge, "decisions": decide}


MUTANTS = [
    mutant(
        "commit order",
        "any processed batch is committed, not only the current one",
        defect(
            "BatchScheduler.next_step",
            "if first is not None and first.status is Status.PROCESSED:",
            "for txid in [t for t, a in self.active.items() if a.status is Status.PROCESSED]:",
            "return Commit(self.current, first.attempt)",
            "return Commit(txid, self.active[txid].attempt)",
        ),
        seen=3,
    ),
    mutant(
        "attempt check",
        "an answer for an old attempt counts for the active one (as in Storm)",
        defect(
            "BatchScheduler._active_attempt",
            "active is not None and active.attempt == attempt",
            "True",
        ),
        on="decisions",
    ),
    mutant(
        "later batches continue",
        "a batch that failed is started again, but those after it are not",
        defect(
            "BatchScheduler.failed",
            "[one for one in self.active if one >= txid]",
            "[txid]",
        ),
        seen=10,
    ),
    mutant(
        "metadata before data",
        "the metadata of a batch are not stored, except for the last batch",
        defect(
            "JsonNode.write",
            "self._tree.create(self.path, written)",
            "b'start' in written and b': 40' not in written "
            "or self._tree.create(self.path, written)",
        ),
        seen=7,
    ),
    mutant(
        "stored attempts",
        "a restarted master begins with attempt 0 again",
        defect(
            "StoredProgress._read_all",
            "if txid >= self.current:",
            "if False:",
        ),
        seen=19,
    ),
    mutant(
        "the current batch is stored",
        "after a commit, the new current batch is not stored",
        defect(
            "StoredProgress.committed",
            "self._write_all(_CURRENT, txid + 1)",
            "None",
        ),
        seen=1,
    ),
    mutant(
        "count check",
        "a phase ends when all counts have arrived, without a comparison with the parts",
        defect(
            "PartCounter.count",
            "self._compare(sender, parts)",
            "None",
        ),
        defect(
            "StageBolt._find",
            "counter.missing_early or self._emitter is not None",
            "self._emitter is not None",
        ),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_found(mutant: Mutant) -> None:
    known = [] if mutant.seen is None else [mutant.seen]
    look = JUDGES[mutant.stages[0]]
    with mutant.alive():
        failure = next(
            ((seed, reason) for seed in chain(known, range(SEEDS_MAX)) if (reason := look(seed))),
            None,
        )
    assert failure is not None, f"{mutant.name}: not found in {SEEDS_MAX} seeds. {mutant.about}"
    seed, reason = failure
    assert not look(seed), "the seed also fails without the mutant"
    print(f"{mutant.name}: seed {seed}: {reason:.200}")  # noqa: T201
