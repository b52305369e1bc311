"""Windows whose spouts, downstream bolts or processes fail, and wrong declarations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sunshower import Context, Line, Records, Topology, count, sessions, tumbling
from sunshower.errors import ConfigError, TopologyError, TopologyFailed, UnknownField
from sunshower.simulation.cluster import SimCluster
from sunshower.state import SqliteState
from sunshower.topologies.streams import Stream
from tests.topologies.operators.kinds import Kept
from tests.topologies.operators.windows.test_windows import Click, Paced, Text, run


def test_rows_of_a_window_are_emitted_until_they_are_processed() -> None:
    refused = []

    class Refuses(Kept):
        def process(self, record: Any) -> None:
            if len(refused) < 3:
                refused.append(record)
                raise ValueError("not yet")
            super().process(record)

    topology = Topology("clicks", attempts_max=5)
    clicks = topology.spout("clicks", Paced(1, 2, 25))
    clicks.window(tumbling(seconds=10, field="at"), count()).shuffle().bolt("kept", Refuses)
    done = run(topology)
    assert set(done.results["kept"][0]) == {(10, 2), (30, 1)}
    assert len(refused) == 3
    counts = done.snapshot.component("clicks")
    assert (counts.acked, counts.failed) == (3, 0)


def test_rows_owed_by_a_former_run_are_emitted_without_their_spout_task(tmp_path: Path) -> None:
    """A spout that is declared first changes the task ids of the others."""
    state = SqliteState(tmp_path / "windows.db")

    class Refuses(Kept):
        def process(self, record: Any) -> None:
            raise ValueError("not in this run")

    for more, sink in ((False, Refuses), (True, Kept)):
        topology = Topology("clicks", attempts_max=1_000)
        clicks = [topology.spout("more", Paced())] if more else []
        clicks.append(topology.spout("clicks", Paced(*([] if more else [1, 2, 25, 26]))))
        merged = clicks[0].merge(*clicks[1:])
        window = tumbling(seconds=10, field="at")
        merged.window(window, count(), state=state).shuffle().bolt("kept", sink)
        with SimCluster(1) as cluster:
            current = cluster.submit(topology.graph())
            current.wait(8.0)
            (records,) = current.results("kept")
    assert set(records) == {(10, 2), (30, 2)}


def test_windows_of_many_groups_wait_for_a_slow_bolt() -> None:
    """The bolt needs 100 s for the rows of one watermark, more than the timeout and `block_max_s`.
    Nothing fails, and no process is killed."""
    groups = 1000
    clicks = [Click(f"user {n % groups}", n // groups * 60.0) for n in range(3 * groups)]

    class Slow(Kept):
        def prepare(self, context: Context) -> None:
            super().prepare(context)
            self.clock = context.clock

        def process(self, row: Any) -> None:
            self.clock.sleep(0.1)
            super().process(row)

    topology = Topology("clicks")
    stream = topology.spout("clicks", Records(clicks, type=Click))
    window = tumbling(seconds=60, field="at")
    stream.group_by("user").window(window, count()).shuffle().bolt("slow", Slow)
    with SimCluster(1) as cluster:
        run = cluster.submit(topology.graph())
        assert run.wait(1000.0)
        (rows,) = run.results("slow")
        counts = run.snapshot().component("clicks")
    assert (len(rows), len(set(rows))) == (3 * groups, 3 * groups)
    assert (counts.acked, counts.failed) == (3 * groups, 0)


def test_a_row_of_a_window_that_always_fails_ends_the_topology() -> None:
    class Refuses(Kept):
        def process(self, record: Any) -> None:
            if record[0] == 10:
                raise ValueError("no tens")

    topology = Topology("clicks", attempts_max=3)
    clicks = topology.spout("clicks", Paced(1, 2, 25))
    clicks.window(tumbling(seconds=10, field="at"), count()).shuffle().bolt("refuses", Refuses)
    with pytest.raises(TopologyFailed, match=r"a watermark of spout 'clicks' failed 3 times.*tens"):
        run(topology)


# ---- wrong declarations -------------------------------------------------------------------------


def declared(assemble: Callable[[Stream[Click]], object]) -> None:
    topology = Topology("clicks")
    assemble(topology.spout("clicks", Records([], type=Click)))
    topology.graph()


HOUR = tumbling(seconds=3600, field="at")


def stripped(click: Click) -> Line:
    return Line(click.user)


@pytest.mark.parametrize(
    ("assemble", "error", "message"),
    [
        (lambda s: s.window("hourly", count()), TopologyError, "'hourly' is no window; give"),
        (lambda s: s.window(HOUR), TopologyError, "needs an aggregator"),
        (lambda s: s.map(stripped).window(HOUR, count()), UnknownField, "no field 'at'"),
        (lambda s: s.window(HOUR, count(), parallelism=2), TopologyError, "without .group_by"),
        (lambda s: s.window(HOUR, count(), state="db"), TopologyError, "'db' is not a state"),
        (lambda _: sessions(gap=0, field="at"), ConfigError, "sessions: gap is 0"),
    ],
)
def test_wrong_windows_are_refused(assemble: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        declared(assemble)


def test_a_field_of_the_spout_that_is_no_time_is_refused() -> None:
    def parsed(text: Text) -> Click:
        return Click("a", float(text.at))

    topology = Topology("clicks")
    topology.spout("texts", Records([], type=Text)).map(parsed).window(HOUR, count())
    with pytest.raises(TopologyError, match="of spout 'texts' has as str, which is no time"):
        topology.graph()


def test_windows_without_ackers_are_refused() -> None:
    topology = Topology("clicks", ackers=0)
    topology.spout("clicks", Records([], type=Click)).window(HOUR, count())
    with pytest.raises(TopologyError, match=r"window 'windows': it needs ackers"):
        topology.graph()


def test_a_spout_without_the_field_of_the_event_time_is_refused() -> None:
    def parsed(line: Line) -> Click:
        return Click(line.text, 0.0)

    topology = Topology("clicks")
    lines = topology.spout("lines", Records([], type=Line))
    lines.map(parsed).window(HOUR, count())
    with pytest.raises(TopologyError, match=r"stream 'default' of spout 'lines' does not have"):
        topology.graph()
