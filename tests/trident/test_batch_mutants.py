"""Whoever breaks one of the rules of exactly once on purpose is found by the swarm."""

from __future__ import annotations

from itertools import chain

import pytest

from tests.mutants.mutant import Mutant, Slip
from tests.trident.batch_swarm import judge

pytestmark = pytest.mark.slow
SEEDS_MAX = 200


def slip(where: str, *pieces: str) -> Slip:
    pairs = tuple(zip(pieces[::2], pieces[1::2], strict=True))
    return Slip(where, pairs, "sunshower.trident")


def mutant(name: str, about: str, *slips: Slip, seen: int | None = None) -> Mutant:
    return Mutant(name, about, slips, ("batches",), seen)


MUTANTS = [
    mutant(
        "commit order",
        "any processed batch is committed, not the current one alone",
        slip(
            "coordinator:MasterCoordinator.next_step",
            "if first is not None and first.status is Status.PROCESSED:",
            "if first := next((a for a in self.active.values() if a.status is Status.PROCESSED), "
            "0):",
            "return Commit(self.current, first.attempt)",
            "return Commit(next(t for t in self.active if self.active[t] is first), first.attempt)",
        ),
    ),
    mutant(
        "attempt check",
        "an answer for an old attempt counts for the active one (Storm: A-9)",
        slip(
            "coordinator:MasterCoordinator._found",
            "active is not None and active.attempt == attempt",
            "True",
        ),
    ),
    mutant(
        "later ones go on",
        "a batch that failed is begun again, and those after it are not",
        slip(
            "coordinator:MasterCoordinator.failed",
            "[one for one in self.active if one >= txid]",
            "[txid]",
        ),
    ),
    mutant(
        "metadata before data",
        "what a batch is made of is told, and not kept",
        slip(
            "spout_coordinator:SpoutCoordinatorBolt._metadata",
            "state.override(txid, made)\n",
            "state.override(txid, made) if txid % 3 else None\n",
            "return state.get(txid)",
            "return made",
        ),
    ),
    mutant(
        "metadata in order",
        "a batch begins though the word of the one before it was lost",
        slip(
            "spout_coordinator:SpoutCoordinatorBolt._late",
            "word.txid > word.current and word.txid - 1 not in self._state",
            "False",
        ),
    ),
    mutant(
        "stored attempts",
        "a new life of the master begins with attempt 0 again (Storm: A-11)",
        slip("stored:CoordinatorMemory._read_all", "if txid >= self.current:", "if False:"),
    ),
    mutant(
        "the current one is kept",
        "the batch after a committed one is current, and the store does not hear of it",
        slip(
            "stored:CoordinatorMemory.committed",
            "self._write_all(_CURRENT, txid + 1)",
            "None",
        ),
    ),
    mutant(
        "count check",
        "a phase is over when all have counted their parts, however many have come",
        slip(
            "counting:Counting.count",
            "self._compare(sender, self._received.get(sender, 0), parts)",
            "self._compare(sender, parts, parts)",
        ),
        slip(
            "batch_bolt:BatchBolt._find",
            "early_done=not (counting.missing_early or is_spout)",
            "early_done=not is_spout",
        ),
    ),
    mutant(
        "a commit of what was seen",
        "a task commits what it has of a batch, also when it was born in the middle of it",
        slip(
            "batch_bolt:BatchBolt._work",
            "if not batch.early_done and self._is_of_commit(batch, tuple):",
            "batch.early_done |= self._is_of_commit(batch, tuple)\n    if False:",
        ),
    ),
    mutant(
        "old epochs",
        "what a former life of the master has begun goes on",
        slip(
            "batch_bolt:BatchBolt._find",
            "attempt.epoch > self._epoch",
            "attempt.epoch > self._epoch and not self._epoch",
            "attempt.epoch < self._epoch or",
            "",
        ),
    ),
    mutant(
        "lower attempts",
        "parts of an attempt that is over are taken for those of the next one",
        slip(
            "batch_bolt:BatchBolt._find",
            "known.attempt.attempt >= attempt.attempt",
            "known.attempt.attempt >= 0",
            "known if known.attempt == attempt else None",
            "known",
        ),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_found(mutant: Mutant) -> None:
    known = [] if mutant.seen is None else [mutant.seen]
    with mutant.alive():
        found = next(
            ((seed, said) for seed in chain(known, range(SEEDS_MAX)) if (said := judge(seed))), None
        )
    assert found is not None, f"{mutant.name}: not found in {SEEDS_MAX} seeds. {mutant.about}"
    seed, said = found
    assert not judge(seed), "without it the seed is as wrong"
    print(f"{mutant.name}: seed {seed}: {said:.200}")  # noqa: T201
