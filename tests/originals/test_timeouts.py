"""Timeouts of pending messages beside RotatingMap, in which Storm's spout keeps them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sunshower.runtime.tracking.pending import Pending
from tests.originals.programs import Program

TIMEOUT_S = 30
# For each message: when it is emitted, and after how many seconds it is acked.
messages = st.lists(
    st.tuples(st.floats(0, 200), st.none() | st.floats(0, 3 * TIMEOUT_S)), min_size=1, max_size=30
)


@given(messages)
def test_storms_messages_fail_after_one_to_two_timeouts_and_ours_after_one(
    storm: Program, given: list[tuple[float, float | None]]
) -> None:
    pending, roots = Pending(1, 64), dict[int, Any]()
    events = [(start, 0, number) for number, (start, _) in enumerate(given)]
    events += [
        (start + took, 1, number) for number, (start, took) in enumerate(given) if took is not None
    ]
    events += [(float(tick_s), 2, -1) for tick_s in range(TIMEOUT_S, 400, TIMEOUT_S)]
    calls, ours = list[list[object]](), dict[int, float]()
    for now, kind, number in sorted(events):
        for root in pending.expired(now):
            failed = next(key for key, of_key in roots.items() if of_key == root)
            ours[failed] = given[failed][0] + TIMEOUT_S
            pending.release(np.array([root]))
            del roots[failed]
        if kind == 0:
            roots[number] = pending.take([number], [number], 1, now, TIMEOUT_S)[0]
            calls.append(["put", number, 0])
        elif kind == 1:
            if number in roots:
                pending.release(np.array([roots.pop(number)]))
            calls.append(["remove", number])
        else:
            calls.append(["rotate"])
    results = storm.run("RotatingMap", [2], calls)
    theirs = {
        number: now
        for (now, kind, _), result in zip(sorted(events), results, strict=True)
        if kind == 2
        for number in result
    }
    assert {*theirs} <= {*ours}, "what Storm fails has failed here"
    for number, now in theirs.items():
        assert ours[number] <= now <= ours[number] + TIMEOUT_S
    never = {number for number, (_, took) in enumerate(given) if took is None}
    assert never <= {*theirs}, "both fail what is never acked"
    took_s = {number: took for number, (_, took) in enumerate(given) if took is not None}
    assert all(took_s.get(number, TIMEOUT_S) >= TIMEOUT_S for number in ours)
