"""Under random faults, no joined pair and no record without a partner is missing."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.seeds import seeds
from tests.topologies.operators.windows.window_swarm import (
    change_of,
    clicks_of,
    join_topology,
    run_with_faults,
    table_topology,
    written_values,
)

KINDS = ("inner", "left", "outer")
WITHIN = 6


def model(seed: int, how: str) -> Counter[Any]:
    """Return (user, time on the left, time on the right) → number, as a plain program has it."""
    left = [click for task in range(2) for click in clicks_of(seed, task)]
    right = clicks_of(-seed - 1, 0)
    pairs = [(a, b) for a in left for b in right if a.user == b.user and abs(a.at - b.at) <= WITHIN]
    found = Counter((a.user, a.at, b.at) for a, b in pairs)
    matched = {id(click) for pair in pairs for click in pair}
    if how != "inner":
        found.update((a.user, a.at, None) for a in left if id(a) not in matched)
    if how == "outer":
        found.update((b.user, None, b.at) for b in right if id(b) not in matched)
    return found


@seeds(36, kinds=len(KINDS))
def test_no_pair_and_no_record_is_missing_from_a_join(seed: int) -> None:
    how = KINDS[seed % 3]
    expected = model(seed, how)
    run = run_with_faults(seed, join_topology(seed, WITHIN, how))
    found = Counter(
        {(*p, last): n for p, own in written_values(run).items() for last, n in own.items()}
    )
    assert not expected - found, f"seed {seed}"
    assert found.keys() == expected.keys(), f"seed {seed}"


@seeds(20, kinds=2)
def test_a_table_has_the_latest_change_and_every_click_is_joined(seed: int) -> None:
    """The clicks with the time -1 come after all changes, replayed ones included."""
    changes, last = [change_of(click) for click in clicks_of(-seed - 1, 0)], dict[str, int]()
    for user, at, _ in changes:
        last[user] = max(at, last.get(user, 0))
    found = written_values(run_with_faults(seed, table_topology(seed, broadcast=seed % 2 == 0)))
    clicks = Counter(tuple(click) for task in range(2) for click in clicks_of(seed, task))
    joined = {click: sum(times.values()) for click, times in found.items() if click[1] >= 0}
    assert not clicks - Counter(joined), f"seed {seed}"
    assert joined.keys() == clicks.keys()
    known = {None, *((user, at) for user, at, _ in changes)}
    assert {(c[0], at) if at is not None else None for c in found for at in found[c]} <= known
    assert {user: {*found[user, -1]} for user in "abc"} == {u: {at} for u, at in last.items()}
