"""Which pairs of spout and state are exactly once, and that others are refused; static values."""

from __future__ import annotations

import pickle
import warnings

import pytest

from sunshower.errors import TopologyError
from sunshower.topologies.operators.states import StateFactory, StateKind
from sunshower.trident.declaration.stateful import check_kinds, why_not
from sunshower.trident.spouts.port import SpoutKind
from sunshower.trident.states.factories import StaticState
from tests.trident.rigs.additions import PLACE, plus

EXACTLY_ONCE = {
    (SpoutKind.TRANSACTIONAL, StateKind.TRANSACTIONAL),
    (SpoutKind.TRANSACTIONAL, StateKind.OPAQUE),
    (SpoutKind.OPAQUE, StateKind.OPAQUE),
}
PAIRS = [(spout, state) for spout in SpoutKind for state in StateKind]


@pytest.mark.parametrize(("spout", "state"), PAIRS)
def test_the_pairs_that_are_exactly_once_are_those_of_storm(
    spout: SpoutKind, state: StateKind
) -> None:
    assert (not why_not(spout, state)) == ((spout, state) in EXACTLY_ONCE)


@pytest.mark.parametrize(("spout", "state"), sorted(EXACTLY_ONCE, key=str))
def test_a_pair_that_is_exactly_once_causes_no_warning(spout: SpoutKind, state: StateKind) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_kinds(spout, state, "state 'counts'")


@pytest.mark.parametrize(
    ("spout", "state", "way_out"),
    [
        (SpoutKind.OPAQUE, StateKind.TRANSACTIONAL, "of kind opaque,"),
        (SpoutKind.TRANSACTIONAL, StateKind.NON_TRANSACTIONAL, "of kind transactional or opaque"),
        (SpoutKind.NON_TRANSACTIONAL, StateKind.OPAQUE, "a spout that can emit a batch again"),
    ],
)
def test_another_pair_is_refused_with_the_reason_or_warned_of(
    spout: SpoutKind, state: StateKind, way_out: str
) -> None:
    with pytest.raises(TopologyError, match=f"state 'counts': from .* Take .*{way_out}"):
        check_kinds(spout, state, "state 'counts'")
    with pytest.warns(UserWarning, match="rows do not count exactly once"):
        check_kinds(spout, state, "state 'counts'", accept=True)


def squares() -> dict[int, int]:
    return {number: number**2 for number in range(4)}


@pytest.mark.parametrize("values", [squares(), squares])
def test_a_static_state_is_looked_up_and_never_written(values: object) -> None:
    factory: StateFactory = pickle.loads(pickle.dumps(StaticState(values)))
    state = factory.make(PLACE)
    assert state.multi_get([3, 2, "none"]) == [9, 4, None]
    with pytest.raises(TopologyError, match="'counts' is static"):
        state.multi_put([3], [9])
    with pytest.raises(TopologyError, match="'counts' is static"):
        state.multi_update([3], [plus(1)])
    with pytest.raises(TopologyError, match="'counts' is static"):
        state.multi_remove([3])
