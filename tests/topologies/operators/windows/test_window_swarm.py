"""Under random faults, no record is missing from its windows."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from sunshower import sessions, sliding, tumbling
from tests.seeds import seeds
from tests.topologies.operators.windows.test_windows import sessions_of
from tests.topologies.operators.windows.window_swarm import (
    DISORDER,
    clicks_of,
    run_with_faults,
    window_topology,
    written_values,
)

TUMBLING = tumbling(seconds=30, field="at", late=DISORDER)
SLIDING = sliding(seconds=30, every=10, field="at", late=DISORDER)
SESSIONS = sessions(gap=5, field="at", late=DISORDER)


def model(seed: int, window: Any) -> Counter[Any]:
    """Return (user, window) → number of clicks, as a plain program has it."""
    clicks = [click for task in range(2) for click in clicks_of(seed, task)]
    if window is SESSIONS:
        times = defaultdict(list)
        for click in clicks:
            times[click.user].append(click.at)
        ends = [
            (u, *end) for u, seconds in times.items() for end in sessions_of(seconds, SESSIONS.gap)
        ]
        return Counter({(user, end): count for user, end, count in ends})
    counts: Counter[Any] = Counter()
    for click in clicks:
        first = click.at - click.at % window.every + window.every
        counts.update((click.user, first + n * window.every) for n in range(window.panes))
    return counts


@seeds(60, kinds=3)
def test_no_click_is_missing_from_its_windows(seed: int) -> None:
    window = (TUMBLING, SLIDING, SESSIONS)[seed % 3]
    written, expected = (
        written_values(run_with_faults(seed, window_topology(seed, window))),
        model(seed, window),
    )
    missing = {p: (written[p], n) for p, n in expected.items() if max(written[p], default=0) < n}
    assert not missing, f"seed {seed}"
    assert written.keys() == expected.keys()
