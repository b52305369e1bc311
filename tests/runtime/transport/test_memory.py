"""The memory of a worker is bounded, even if a bolt never acks: the formula of `Wired`."""

from __future__ import annotations

from typing import Any

import pytest

from sunshower import Bolt, Collector, Context, Counter, Number, Topology, Tuple
from sunshower.config import Internals
from sunshower.runtime.plan import Layout, make_plan
from sunshower.runtime.transport.channels import RemoteChannel
from sunshower.runtime.worker import Worker
from tests.runtime.network import Network
from tests.runtime.test_under_load import every_layout

PENDING = 5_000
WINDOW = 600
BATCH = 200
LEDGER_SLOTS = 8_192  # the next power of two


class Forgetful(Bolt[Number, None]):
    """Works 10 µs on each number, and acks none."""

    def prepare(self, context: Context) -> None:
        self.clock = context.clock

    def execute(self, tuple: Tuple[Number], out: Collector[Any]) -> None:
        self.clock.sleep(1e-5)


def network(layout: Layout, longest_s: float | None) -> Network:
    topology = Topology(
        "forgetful",
        workers=2,
        ackers=1,
        message_timeout_s=30,
        message_timeout_max_s=longest_s,
        spout_pending=PENDING,
        window_records_max=WINDOW,
        internals=Internals(frame_records_max=BATCH),
        attempts_max=1_000,
    )
    topology.spout("numbers", Counter()).shuffle().bolt("forgets", Forgetful)
    return Network(make_plan(topology.graph(), layout))


def check_bound(core: Worker) -> None:
    """Compare every container of a worker with the formula."""
    wired = core._wired
    for spout in wired.spouts.values():
        assert len(spout.pending) + len(spout.replays.line) <= PENDING
        assert len(spout.replays.line.charges) <= PENDING
        assert spout.pending.bytes_per_slot() == 52
    for acker in wired.ackers.values():
        tables = acker.ledger._tables.values()
        assert sum(len(table.tag) for table in tables) <= LEDGER_SLOTS
        assert acker.ledger.bytes_per_slot() <= (24 if acker.ledger._timed else 16)
        assert not acker._reasons
    for inbox in wired.inboxes.values():
        assert sum(len(entry[0]) for entry in inbox.entries) <= 2 * WINDOW
    for channel in wired.channels.values():
        assert channel.load <= 2 * WINDOW
        if isinstance(channel, RemoteChannel):
            assert channel.queued + sum(f.records for f in channel.unsettled) == channel.load
    assert not wired.overload
    for peer_link in core._peer_links.values():
        assert len(peer_link._in_flight) <= core.plan.graph.config.internals.calls_in_flight_max
        roots = [r for report in peer_link.content.reports.values() for r in report.roots()]
        assert sum(map(len, roots)) <= 4 * PENDING


@pytest.mark.long
@every_layout
@pytest.mark.parametrize("longest_s", [None, 60])
def test_bolt_that_never_acks_fills_the_pending_table_and_nothing_else(
    layout: Layout, longest_s: float | None
) -> None:
    net = network(layout, longest_s)
    spout = net.task("numbers")

    def is_enough() -> bool:
        for core in net.workers.values():
            check_bound(core)
        return bool(spout.stats().counts.replayed > 2 * PENDING)

    net.until(is_enough)
    assert len(spout.pending) + len(spout.replays.line) == PENDING
