"""Which pairs of spout and state kinds are exactly once; others raise, or warn if accepted.

                    state: non-transactional   transactional   opaque
spout: transactional       no                  yes             yes
       opaque              no                  no              yes
       non-transactional   no                  no              no

Storm: docs/Trident-state.md (it leaves the check to the reader).
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

from sunshower.errors import TopologyError
from sunshower.trident.spouts.port import SpoutKind
from sunshower.trident.states.port import StateKind


class Verdict(NamedTuple):
    """Whether a pair is exactly once, and the reason."""

    exactly_once: bool
    reason: str


def verdict(spout: SpoutKind, state: StateKind) -> Verdict:
    """The verdict on a pair of kinds."""
    match spout, state:
        case SpoutKind.NON_TRANSACTIONAL, _:
            return Verdict(
                False, "a batch that is repeated has other rows, some of them never again"
            )
        case _, StateKind.NON_TRANSACTIONAL:
            return Verdict(
                False, "the state does not know that it has had a batch: it counts twice"
            )
        case SpoutKind.OPAQUE, StateKind.TRANSACTIONAL:
            return Verdict(
                False,
                "a batch may be repeated with other rows, and the state keeps those of the first "
                "attempt: some would count twice, others never",
            )
        case SpoutKind.TRANSACTIONAL, StateKind.TRANSACTIONAL:
            return Verdict(True, "a batch that is repeated is the same, and the state has it")
        case SpoutKind.TRANSACTIONAL, StateKind.OPAQUE:
            return Verdict(True, "a batch that is repeated replaces what it was")
    return Verdict(True, "a batch that is repeated, with whatever rows, replaces what it was")


def check(spout: SpoutKind, state: StateKind, where: str, accept: bool = False) -> None:
    """Raise TopologyError if rows would not count exactly once; only warn with `accept`. `where`
    names the state and the stream; users accept with `not_exactly_once=True`."""
    found = verdict(spout, state)
    if found.exactly_once:
        return
    said = (
        f"{where}: from a spout of kind {spout.value} into a state of kind {state.value}, rows do "
        f"not count exactly once: {found.reason}"
    )
    if not accept:
        raise TopologyError(f"{said}. {_way_out(spout)}, or accept it by not_exactly_once=True")
    warnings.warn(said, stacklevel=3)


def check_sharing(where: str, accept: bool = False) -> None:
    """The same check for a transactional state whose tasks may get other rows in each attempt."""
    said = (
        f"{where}: into a state of kind transactional, rows do not count exactly once after a "
        "shuffle or a merge: which task gets which rows differs from attempt to attempt, and "
        "what a task has written stays"
    )
    if not accept:
        raise TopologyError(
            f"{said}. Say who gets which by partition_by or global_, take a state of kind opaque, "
            "or accept it by not_exactly_once=True"
        )
    warnings.warn(said, stacklevel=3)


def _way_out(spout: SpoutKind) -> str:
    kinds = [kind for kind in StateKind if verdict(spout, kind).exactly_once]
    if not kinds:
        return "Take a spout that can emit a batch again"
    return f"Take a state of kind {' or '.join(kind.value for kind in kinds)}"
