"""The stored state of a master is read as it was written, also by other releases."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import numpy as np
import pytest

from sunshower import versions
from sunshower.errors import VersionMismatch
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.events.health import TaskError
from sunshower.runtime.events.metrics import (
    Counts,
    FailurePlace,
    Latencies,
    LatencyKind,
    TaskStats,
    Totals,
    WorkerStats,
)


def test_master_state_is_read_as_it_was_written() -> None:
    state = MasterState(
        {0: 3, 7: 1},
        {"split": Totals(Counts(emitted=9, acked=4))},
        {5: TaskError("split", 0, 1, "it raised", "OSError", "Traceback …")},
        positions={1: 5},
        drawn={1: 9},
        suspects={1: {7: 2}},
        draining=True,
        error="why",
    )
    assert MasterState.from_bytes(state.to_bytes()) == state
    assert MasterState.from_bytes(MasterState().to_bytes()) == MasterState()


def test_state_of_a_master_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as other_release:
        other_release.setattr(versions, "MASTER_STATE", 7)
        data = MasterState().to_bytes()
    with pytest.raises(VersionMismatch, match=r"version 7, and .* uses version 1: let all nodes"):
        MasterState.from_bytes(data)


def test_unknown_optional_fields_are_kept_and_unknown_details_ignored() -> None:
    """Written by a release that has more of them, and read by this one."""
    state = MasterState(
        {0: 3}, {"split": Totals(Counts(9))}, {5: TaskError("split", 0, 1, "it raised")}
    )
    fields = msgpack.unpackb(state.to_bytes().partition(b"\n")[2], strict_map_key=False)
    fields["colour"] = {"of": "the sky"}
    fields["retired"]["split"]["later"] = 1
    fields["quarantined"][5]["later"] = 1
    read = MasterState.from_bytes(versions.stamp(1, msgpack.packb(fields)))
    assert read == replace(state, unknown={"colour": {"of": "the sky"}})
    assert MasterState.from_bytes(read.to_bytes()) == read


def test_state_without_version_or_with_fewer_fields_is_of_version_1() -> None:
    data = MasterState({0: 3}).to_bytes().partition(b"\n")[2]
    assert MasterState.from_bytes(data) == MasterState({0: 3})
    assert MasterState.from_bytes(msgpack.packb({"lives": {0: 3}})) == MasterState({0: 3})


def test_latencies_of_former_lives_are_read_as_they_were_written() -> None:
    def life(*seconds: float) -> WorkerStats:
        latencies = Latencies()
        latencies.add(np.array(seconds))
        measured = {LatencyKind.COMPLETE: latencies}
        return WorkerStats(0, 1, (TaskStats(1, "lines", Counts(pending=7), measured),))

    state = MasterState()
    state.retire(life(0.25, 0.5))
    state.retire(life(8.0))
    read = MasterState.from_bytes(state.to_bytes())
    was, after = (
        stored.retired["lines"].latencies[LatencyKind.COMPLETE] for stored in (state, read)
    )
    assert after.to_fields() == was.to_fields()
    assert (after.sum_s, after.max_s) == (8.75, 8.0)
    assert read.retired["lines"].counts == Counts()


def test_counts_and_latencies_of_bolts_of_former_lives_are_kept_too() -> None:
    execute, queue = Latencies(), Latencies()
    execute.add_one(0.25, 3)
    queue.add_one(8.0)
    place = FailurePlace("exception", "split", 0, 1)
    counts = Counts(failed=2, places={place: 2}, emitted_to={"default": 7})
    state = MasterState()
    measured = {LatencyKind.EXECUTE: execute, LatencyKind.QUEUE: queue}
    task = TaskStats(1, "split", counts, measured)
    state.retire(WorkerStats(0, 1, (task,)))
    read = MasterState.from_bytes(state.to_bytes())
    split = read.retired["split"]
    assert vars(split.counts) == vars(counts)
    assert split.latencies.keys() == measured.keys()
    for kind, latencies in measured.items():
        assert split.latencies[kind].to_fields() == latencies.to_fields()
