"""What must be true of a worker after every slice of its work, whatever has happened."""

from __future__ import annotations

from sunshower.runtime.worker import Worker


def check_invariants(core: Worker) -> None:
    """Every book of a worker is in order, and no more is pending than was allowed.

    Raises AssertionError: then the protocol itself is broken, not the topology.
    """
    for acker in core._wired.ackers.values():
        acker.ledger.check_invariants()
    for spout in core._wired.spouts.values():
        spout.pending.check_invariants()
        held, most = (
            len(spout.pending) + len(spout.replays.line),
            core.plan.graph.config.spout_slots,
        )
        assert held <= most, f"{spout.task.component}: {held} records are open, {most} are allowed"
