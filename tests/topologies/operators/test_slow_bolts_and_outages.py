"""Windows, joins, tables and timers with a slow bolt, and with a store that is unavailable.

Both take longer than the message timeout. No record becomes a dead letter, and none is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sunshower import Topology
from sunshower.runtime.events.injected_faults import InjectedFaults, SlowTask
from sunshower.simulation.cluster import SimCluster, SimRun
from tests.topologies.operators.joins import test_join_swarm as joins
from tests.topologies.operators.test_keyed_state_recovery import OutageState
from tests.topologies.operators.timers import test_timer_swarm as timers
from tests.topologies.operators.windows import test_window_swarm as windows
from tests.topologies.operators.windows.window_swarm import (
    clicks_of,
    join_topology,
    table_topology,
    window_topology,
    written_values,
)

SEED = 7
TIMEOUT_S = 30.0  # message_timeout_s by default


def check_windows(run: SimRun) -> None:
    written, expected = written_values(run), windows.model(SEED, windows.TUMBLING)
    assert written.keys() == expected.keys()
    assert all(max(written[place]) >= n for place, n in expected.items())


def check_joins(run: SimRun) -> None:
    rows = {(*place, last) for place, values in written_values(run).items() for last in values}
    assert rows == joins.model(SEED, "outer", joins.WITHIN).keys()


def check_tables(run: SimRun) -> None:
    clicks = {tuple(click) for task in range(2) for click in clicks_of(SEED, task)}
    assert {place for place in written_values(run) if place[1] >= 0} == clicks


def check_timers(run: SimRun) -> None:
    seconds = {
        (user, int(second))
        for (user, _), texts in written_values(run).items()
        for text in texts
        for second in str(text).split()
    }
    assert seconds == {(c.user, c.at) for task in range(2) for c in clicks_of(SEED, task)}


# The topology with a state, the check of its results, and the seconds per row of its slow bolt.
KINDS: dict[str, tuple[Callable[[Any], Topology], Callable[[SimRun], None], float]] = {
    "window": (
        lambda state: window_topology(SEED, windows.TUMBLING, state=state),
        check_windows,
        3.0,
    ),
    "join": (lambda state: join_topology(SEED, joins.WITHIN, "outer", state), check_joins, 0.2),
    "table": (lambda state: table_topology(SEED, broadcast=False, state=state), check_tables, 0.2),
    "timer": (lambda state: timers.timer_topology(SEED, ("user",), "at", state), check_timers, 8.0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_outage_longer_than_the_timeout_makes_no_dead_letters(kind: str) -> None:
    declare, check, _ = KINDS[kind]
    state = OutageState()
    with SimCluster(SEED) as cluster:
        run = cluster.submit(declare(state).graph(), sample=1)
        assert run.wait(900.0), run.snapshot()
        assert run.now() > TIMEOUT_S
        snapshot = run.snapshot()
        check(run)
    assert state.calls.refused == 16
    assert sum(task.counts.dead for w in snapshot.workers.values() for task in w.tasks) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_slow_downstream_bolt_fails_nothing(kind: str) -> None:
    declare, check, row_s = KINDS[kind]
    with SimCluster(SEED) as cluster:
        run = cluster.submit(declare(None).graph(), sample=1)
        run.disturb(InjectedFaults(slows=(SlowTask(component="note", seconds=row_s),)))
        assert run.wait(900.0), run.snapshot()
        assert run.now() > TIMEOUT_S
        snapshot = run.snapshot()
        check(run)
    counts = [task.counts for w in snapshot.workers.values() for task in w.tasks]
    assert not any(count.failed or count.dead for count in counts), snapshot
