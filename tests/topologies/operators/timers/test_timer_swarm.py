"""Under random faults, no change of a state is lost, and each timer fires at least once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from sunshower import KeyState, Topology
from sunshower.config import Internals
from sunshower.state import MemoryState
from tests.seeds import seeds
from tests.topologies.operators.windows.window_swarm import (
    DISORDER,
    Click,
    Clicks,
    Note,
    clicks_of,
    run_with_faults,
    written_values,
)

GAP = 7


def gathers(click: Click, state: KeyState[set[int]]) -> None:
    """Keep a click until the timer of its key fires. Later clicks do not move the timer."""
    state.value = {*(state.value or ()), click.at}
    if state.timer is None:
        state.timer = state.time + GAP


def fires(key: Any, state: KeyState[set[int]]) -> Iterator[tuple[str, float, str]]:
    yield key[0], state.time, " ".join(map(str, state.value or ()))
    state.value = None


def fires_one(key: Any, state: KeyState[set[int]]) -> Iterator[tuple[str, float, str]]:
    """Emit one click, and set the timer for the others."""
    first, *others = sorted(state.value or ())
    yield key[0], state.time, str(first)
    state.value = {*others} or None
    state.timer = state.time + 1 if others else None


def timer_topology(
    seed: int,
    by: Sequence[str],
    event_time: str | None,
    state: Any = None,
    functions: tuple[Any, Any] | None = None,
) -> Topology:
    function, on_timer = functions or (gathers, fires_one if seed % 4 == 0 else fires)
    topology = Topology(
        "clicks", workers=3, attempts_max=1_000, internals=Internals(peer_link_retry_s=0.5)
    )
    clicks = topology.spout("clicks", Clicks(seed), parallelism=2)
    fired = clicks.group_by(*by).process(
        function,
        on_timer=on_timer,
        event_time=event_time,
        late=0 if event_time is None else DISORDER,
        state=state or MemoryState(),
        fields=("user", "at", "clicks"),
        parallelism=2,
    )
    fired.shuffle().bolt("note", Note)
    return topology


@seeds(300)
def test_each_click_is_in_the_state_when_a_timer_fires(seed: int) -> None:
    """With odd seeds each click has its own key, which no later click reads."""
    by = ("user", "at")[: 1 + seed % 2]
    event_time = None if seed % 3 == 0 else "at"
    seconds: defaultdict[str, set[int]] = defaultdict(set)
    for (user, _), texts in written_values(
        run_with_faults(seed, timer_topology(seed, by, event_time))
    ).items():
        seconds[user].update(int(second) for text in texts for second in text.split())
    for user in "abc":
        expected = {c.at for task in range(2) for c in clicks_of(seed, task) if c.user == user}
        assert seconds[user] == expected, f"seed {seed}, user {user}"
