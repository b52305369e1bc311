"""Under random faults, no joined pair and no record without a partner is missing."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.seeds import seeds
from tests.topologies.operators.windows.window_swarm import (
    Click,
    change_of,
    clicks_of,
    join_topology,
    run_with_faults,
    table_topology,
    written_values,
)

WITHIN = 6
KINDS: list[tuple[str, Any]] = [
    *(("inner", WITHIN), ("left", WITHIN), ("outer", WITHIN)),
    *(("semi", (0, WITHIN)), ("anti", WITHIN), ("as of", None)),
    ("left", lambda click: (click.at, click.at + click.at % 9)),
]


def are_partners(a: Click, b: Click, within: Any) -> bool:
    if callable(within):
        first, last = within(a)
        return bool(first <= b.at <= last)
    before, after = within if isinstance(within, tuple) else (within, within)
    return bool(-before <= b.at - a.at <= after)


def model(seed: int, how: str, within: Any) -> Counter[Any]:
    """Return (user, time on the left, time on the right) → number, as a plain program has it."""
    left = [click for task in range(2) for click in clicks_of(seed, task)]
    right = clicks_of(-seed - 1, 0)
    both = [(a, b) for a in left for b in right if a.user == b.user]
    if how == "as of":
        times = [[b.at for b in right if b.user == a.user and b.at <= a.at] for a in left]
        return Counter(
            (a.user, a.at, max(earlier, default=None))
            for a, earlier in zip(left, times, strict=True)
        )
    pairs = [(a, b) for a, b in both if are_partners(a, b, within)]
    counts = Counter((a.user, a.at, b.at) for a, b in pairs)
    matched = {id(click) for pair in pairs for click in pair}
    if how in ("semi", "anti"):
        return Counter((a.user, a.at, how) for a in left if (id(a) in matched) == (how == "semi"))
    if how != "inner":
        counts.update((a.user, a.at, None) for a in left if id(a) not in matched)
    if how == "outer":
        counts.update((b.user, None, b.at) for b in right if id(b) not in matched)
    return counts


@seeds(84, first=2, kinds=4)  # in `make test` four kinds, of which "outer" has two others
def test_no_pair_and_no_record_is_missing_from_a_join(seed: int) -> None:
    how, within = KINDS[seed % len(KINDS)]
    expected = model(seed, how, within)
    run = run_with_faults(seed, join_topology(seed, within, how))
    counts = Counter(
        {(*p, last): n for p, times in written_values(run).items() for last, n in times.items()}
    )
    assert not expected - counts, f"seed {seed}"
    assert counts.keys() == expected.keys(), f"seed {seed}"


@seeds(20, kinds=2)
def test_a_table_has_the_latest_change_and_every_click_is_joined(seed: int) -> None:
    """The clicks with the time -1 come after all changes, replayed ones included."""
    changes, last = [change_of(click) for click in clicks_of(-seed - 1, 0)], dict[str, int]()
    for user, at, _ in changes:
        last[user] = max(at, last.get(user, 0))
    written = written_values(run_with_faults(seed, table_topology(seed, broadcast=seed % 2 == 0)))
    clicks = Counter(tuple(click) for task in range(2) for click in clicks_of(seed, task))
    joined = {click: sum(times.values()) for click, times in written.items() if click[1] >= 0}
    assert not clicks - Counter(joined), f"seed {seed}"
    assert joined.keys() == clicks.keys()
    known = {None, *((user, at) for user, at, _ in changes)}
    assert {(c[0], at) if at is not None else None for c in written for at in written[c]} <= known
    assert {user: {*written[user, -1]} for user in "abc"} == {u: {at} for u, at in last.items()}
