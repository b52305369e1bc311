"""Mutation tests: the stages find each defect that is put into the core."""

from __future__ import annotations

from itertools import chain

import pytest

from tests.mutants.bolts import BOLTS
from tests.mutants.ledger import LEDGER
from tests.mutants.mutant import Mutant, defect
from tests.mutants.spouts import SPOUTS
from tests.mutants.stress import CRASH, Result, stress
from tests.mutants.transport import TRANSPORT

pytestmark = [pytest.mark.mutants, pytest.mark.timeout(1200)]  # alone, the longest takes 80 s
MUTANTS = [*LEDGER, *TRANSPORT, *SPOUTS, *BOLTS]
SEEDS_MAX = 1_000
READ = "self._reader.read(...)"


def first_broken(mutant: Mutant) -> tuple[str, int, Result] | None:
    """The stage and the seed that show the mutant: its known seed, or else the first that does.

    A seed gives the same run each time, so a search from 0 needs no more seeds than the known one.
    """
    known = [] if mutant.seen is None else [mutant.seen]
    with mutant.alive():
        for seed in chain(known, range(SEEDS_MAX)):
            for stage in mutant.stages:
                result = stress(stage, seed)
                if result.wrong:
                    return stage, seed, result
    return None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_found(mutant: Mutant) -> None:
    failure = first_broken(mutant)
    assert failure is not None, f"{mutant.name}: not found in {SEEDS_MAX} seeds. {mutant.about}"
    stage, seed, result = failure
    control = stress(stage, seed)
    assert not control.wrong, f"{stage}, seed {seed}, fails without the mutant: {control.reasons}"
    print(f"{stage}, seed {seed}: {', '.join(result.wrong)}; {result.reasons[0]}")  # noqa: T201


def test_known_seeds_are_within_the_search_and_few() -> None:
    known = [mutant.seen for mutant in MUTANTS if mutant.seen is not None]
    assert max(known) < SEEDS_MAX
    assert len(known) < len(MUTANTS) / 3, "most mutants are found without a known seed"


def test_a_mutant_with_an_unknown_name_is_an_error() -> None:
    nonsense = defect("Worker.receive", READ, "no_such_name()")
    with nonsense.made(), pytest.raises(NameError, match="no_such_name"):
        stress("lines", 0)


def test_a_crash_is_reported_as_a_crash() -> None:
    crash = defect("Worker.receive", READ, "{}['nobody']")
    with crash.made():
        result = stress("lines", 0)
    assert result.wrong == (CRASH,)
    assert result.reasons == ("KeyError: 'nobody'",)


def test_there_are_enough_mutants_and_their_names_differ() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 66


def test_after_a_mutant_the_core_is_restored() -> None:
    before = stress("lines", 1)
    with MUTANTS[0].alive():
        pass
    after = stress("lines", 1)
    assert before.outcome == after.outcome
