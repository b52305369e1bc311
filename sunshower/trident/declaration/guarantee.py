"""Which pairs of spout and state are exactly once; separate because it is the table of a guarantee.

Other pairs raise, or warn if they are accepted.

                    state: non-transactional   transactional   opaque
spout: transactional       no                  yes             yes
       opaque              no                  no              yes
       non-transactional   no                  no              no

Storm: docs/Trident-state.md (it leaves the check to the reader).
"""

from __future__ import annotations

import warnings

from sunshower.errors import TopologyError
from sunshower.topologies.operators.states import StateKind
from sunshower.trident.spouts.port import SpoutKind


def why_not(spout: SpoutKind, state: StateKind) -> str:
    """Why a pair of kinds is not exactly once; empty if it is."""
    match spout, state:
        case SpoutKind.NON_TRANSACTIONAL, _:
            return "a batch that is repeated has other rows, some of them never again"
        case _, StateKind.NON_TRANSACTIONAL:
            return "the state does not know that it has had a batch: it counts twice"
        case SpoutKind.OPAQUE, StateKind.TRANSACTIONAL:
            return (
                "a batch may be repeated with other rows, and the state keeps those of the first "
                "attempt: some would count twice, others never"
            )
    return ""


def check_kinds(spout: SpoutKind, state: StateKind, where: str, accept: bool = False) -> None:
    """Raise TopologyError if rows would not count exactly once; only warn with `accept`. `where`
    names the state and the stream; users accept with `not_exactly_once=True`."""
    if not (reason := why_not(spout, state)):
        return
    kinds = " or ".join(kind.value for kind in StateKind if not why_not(spout, kind))
    _refuse(
        f"{where}: from a spout of kind {spout.value} into a state of kind {state.value}, rows do "
        f"not count exactly once: {reason}",
        f"Take a state of kind {kinds}" if kinds else "Take a spout that can emit a batch again",
        accept,
    )


def check_sharing(where: str, accept: bool = False, *, varies: bool = False) -> None:
    """The same check for a transactional state whose tasks may get other rows in each attempt;
    `varies`: because the rows themselves were made of those that had come to one task."""
    problem = (
        "after a shuffle or a merge, what is made of several rows of a task (partition_aggregate, "
        "top, an operator of your own) differs from attempt to attempt"
        if varies
        else "after a shuffle or a merge which task gets which rows differs from attempt to attempt"
    )
    _refuse(
        f"{where}: into a state of kind transactional, rows do not count exactly once: {problem}, "
        "and what a task has written stays",
        "Say before who gets which by partition_by or global_, take a state of kind opaque",
        accept,
    )


def _refuse(problem: str, way_out: str, accept: bool) -> None:
    if not accept:
        raise TopologyError(f"{problem}. {way_out}, or accept it by not_exactly_once=True")
    warnings.warn(problem, stacklevel=4)
