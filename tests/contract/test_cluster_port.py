"""Contract tests for `Cluster` and `Run` (runtime/cluster.py), on the simulator and on Ray."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sunshower.config import Internals
from sunshower.errors import ClusterError, LifecycleError, TopologyFailed
from sunshower.runtime.cluster import Run
from sunshower.runtime.control.lifecycle import State
from sunshower.runtime.events.event_log import What
from sunshower.runtime.events.injected_faults import InjectedFaults, Link, Raise, SlowTask
from sunshower.runtime.events.metrics import Snapshot
from sunshower.runtime.plan import Layout
from tests.contract.conftest import PATIENCE_S, Submit
from tests.contract.topologies import TOTAL, Paced, chain, refuse

# For calls that adapters only pass on to the core: `make test` runs these on the simulator only.
ON_RAY = pytest.param("ray", marks=[pytest.mark.ray, pytest.mark.long])
on_ray_only_if_long = pytest.mark.parametrize("cluster", ["sim", ON_RAY], indirect=True)


def until(run: Run, enough: Callable[[Snapshot], bool]) -> Snapshot:
    """Let time pass until `enough` holds for the snapshot."""
    end_s = run.now() + PATIENCE_S
    while not enough(snapshot := run.snapshot()):
        over = run.wait(0.05) or run.now() >= end_s
        assert not over or enough(run.snapshot()), f"the condition never held: {snapshot}"
    return snapshot


def pass_time(run: Run, seconds: float) -> None:
    """Let time pass, and check that the topology is not finished then."""
    assert not run.wait(seconds), f"it is finished: {run.snapshot()}"


def acked(snapshot: Snapshot) -> int:
    return snapshot.component("numbers").acked


def written(run: Run) -> set[Any]:
    """All keys that the sinks have written, before and after restarts."""
    return {entry.detail[0] for entry in run.history() if entry.what is What.WROTE}


def completed(run: Run) -> set[int]:
    """The numbers of all messages whose trees were completed, before and after restarts."""
    entries = [entry for entry in run.history() if entry.what is What.COMPLETED]
    return {number for entry in entries for number in entry.values.tolist()}


def arrived(run: Run) -> int:
    """How many records the sinks have written, with repetitions."""
    return sum(entry.what is What.WROTE for entry in run.history())


def sent(run: Run, task: int) -> int:
    """How many records a task has sent."""
    entries = [entry for entry in run.history() if entry.what is What.SENT and entry.task == task]
    return sum(len(entry.values) for entry in entries)


def worker_of(run: Run, component: str) -> int:
    (task,) = run.plan.tasks_of(component)
    return task.worker


def wait_and_check_all_written(run: Run, paced: Paced | None = None) -> None:
    """`paced`: the source, which may end now."""
    if paced is not None and paced.go is not None:
        paced.go.touch()
    assert run.wait(PATIENCE_S), f"it does not end: {run.snapshot()}"
    total = TOTAL if paced is None else paced.total
    assert written(run) == set(range(total))
    assert completed(run) == set(range(total)), "counts may be lost with a master"
    assert run.snapshot().component("numbers").pending == 0


# ---- a run without faults -----------------------------------------------------------------------


def test_a_topology_runs_to_its_end_and_reports_results_and_counts(ended: Run) -> None:
    assert ended.results("sink") == [set(range(TOTAL))]
    assert ended.results("relay") == [None]
    snapshot = ended.snapshot()
    assert snapshot.state == State.FINISHED
    spout = snapshot.component("numbers")
    assert (spout.emitted, spout.acked, spout.failed, spout.pending) == (TOTAL, TOTAL, 0, 0)
    assert snapshot.component("sink").executed == TOTAL
    assert snapshot.restarts == 0


@on_ray_only_if_long
def test_results_come_in_the_order_of_the_tasks(submit: Submit) -> None:
    run = submit(chain(Paced(TOTAL, 0.3), sinks=3))
    assert run.wait(PATIENCE_S)
    results = run.results("sink")
    assert len(results) == 3
    assert sorted(number for seen in results for number in seen) == list(range(TOTAL))


def test_history_has_events_of_every_kind_sorted_by_time(ended: Run) -> None:
    history = ended.history()
    rows = dict.fromkeys(What, 0)
    for entry in history:
        rows[entry.what] += max(len(entry.values), 1)
    spout = [What.EMITTED, What.COMPLETED]
    assert [rows[what] for what in spout] == [TOTAL, TOTAL]
    edges = [What.SENT, What.DELIVERED, What.ACKED]
    assert [rows[what] for what in edges] == [2 * TOTAL] * 3, "one edge to the relay, one from it"
    assert rows[What.WROTE] == TOTAL
    assert rows[What.STARTED] == len(ended.plan.workers)
    times = [entry.at_s for entry in history]
    assert times == sorted(times)
    assert times[-1] <= ended.now()


def test_whole_trees_are_traced_and_found_by_their_root(ended: Run) -> None:
    traces = ended.traces()
    assert traces.silent == ()
    assert {tree.number for tree in traces.trees} == set(range(TOTAL))
    for tree in traces.trees:
        assert (tree.outcome, tree.attempt, tree.spout) == ("complete", 1, "numbers[0]")
        assert [hop.target for hop in tree.hops] == ["relay[0]", "sink[0]"]
        assert [hop.parent for hop in tree.hops] == [None, tree.hops[0].edge]
        assert {hop.record for hop in tree.hops} == {f"Item(number={tree.number})"}
        times = [time for hop in tree.hops for time in (hop.sent_s, hop.delivered_s, hop.acked_s)]
        assert all(tree.emitted_s <= time <= tree.ended_s for time in times), "one clock for all"
    (selected,) = ended.traces(traces.trees[0].root).trees
    assert (selected.root, selected.number) == (traces.trees[0].root, traces.trees[0].number)
    assert [hop.edge for hop in selected.hops] == [hop.edge for hop in traces.trees[0].hops]


@on_ray_only_if_long
def test_by_default_few_trees_are_traced_and_without_a_share_none(submit: Submit) -> None:
    run = submit(chain(Paced(TOTAL, 0.1)))
    assert run.wait(PATIENCE_S)
    assert {tree.number for tree in run.traces().trees} >= {0}
    run.stop()
    run = submit(chain(Paced(TOTAL, 0.1), trace_share=0))
    assert run.wait(PATIENCE_S)
    assert run.traces().trees == ()


@on_ray_only_if_long
def test_without_a_sample_no_history_is_kept(submit: Submit) -> None:
    run = submit(chain(Paced(TOTAL, 0.1)), Layout.PACK, sample=None)
    assert run.wait(PATIENCE_S)
    assert run.history() == []


@on_ray_only_if_long
def test_a_record_that_always_fails_ends_the_topology(submit: Submit) -> None:
    run = submit(chain(bolt=refuse, attempts_max=2), Layout.PACK)
    with pytest.raises(TopologyFailed, match="no sevens"):
        run.wait(PATIENCE_S)
    with pytest.raises(TopologyFailed, match="no sevens"):
        run.snapshot()
    with pytest.raises(TopologyFailed, match="no sevens"):
        run.finished()


# ---- deaths and pauses --------------------------------------------------------------------------


@on_ray_only_if_long
def test_a_worker_that_is_killed_loses_nothing(submit: Submit, paced: Paced) -> None:
    """On Ray: tests/guarantee/test_deaths_on_ray.py, with those of other components."""
    run = submit(chain(paced))
    until(run, lambda snapshot: acked(snapshot) > 5)
    assert run.kill_worker(worker_of(run, "relay")) > 0
    wait_and_check_all_written(run, paced)
    assert run.snapshot().restarts == 1
    assert sum(entry.what is What.STARTED for entry in run.history()) == len(run.plan.workers) + 1


def test_a_killed_master_is_replaced_by_one_with_its_state(submit: Submit, paced: Paced) -> None:
    run = submit(chain(paced))
    until(run, lambda snapshot: acked(snapshot) > 5)
    run.kill_worker(worker_of(run, "relay"))
    until(run, lambda snapshot: snapshot.restarts == 1)
    assert run.kill_master() > 0
    latest = until(run, lambda snapshot: len(snapshot.workers) == len(run.plan.workers))
    assert latest.restarts == 1
    assert acked(latest) > 5
    wait_and_check_all_written(run, paced)


def test_a_pause_is_no_death(submit: Submit, paced: Paced) -> None:
    run = submit(chain(paced))
    until(run, lambda snapshot: acked(snapshot) > 5)
    sink = worker_of(run, "sink")
    run.pause_worker(sink)
    pass_time(run, 0.5)  # tuples in transit arrive
    before = len(written(run))
    pass_time(run, 1.0)
    assert len(written(run)) == before, "it works while it is paused"
    run.resume_worker(sink)
    wait_and_check_all_written(run, paced)
    assert run.snapshot().restarts == 0


@on_ray_only_if_long
def test_a_worker_that_is_killed_while_paused_is_replaced_by_one_that_runs(
    submit: Submit, paced: Paced
) -> None:
    run = submit(chain(paced))
    until(run, lambda snapshot: acked(snapshot) > 5)
    sink = worker_of(run, "sink")
    run.pause_worker(sink)
    run.kill_worker(sink)
    until(run, lambda snapshot: snapshot.restarts == 1)
    run.resume_worker(sink)
    wait_and_check_all_written(run, paced)


def test_a_paused_master_delays_no_tuples(submit: Submit, paced: Paced) -> None:
    run = submit(chain(paced, sinks=2, workers=2))
    until(run, lambda snapshot: acked(snapshot) > 5)
    before = len(written(run))
    run.pause_master()
    end_s = run.now() + PATIENCE_S
    while len(written(run)) <= before + 5:
        assert run.now() < end_s, "nothing is written while the master is paused"
        run.wait(0.1)
    run.resume_master()
    wait_and_check_all_written(run, paced)


def test_the_death_of_a_node_ends_all_its_processes_and_nothing_is_lost(
    submit: Submit, paced: Paced
) -> None:
    run = submit(chain(paced, sinks=2, workers=2))
    until(run, lambda snapshot: acked(snapshot) > 5)
    ((node, workers),) = run.nodes().items()
    assert workers == run.plan.workers
    assert len(run.kill_node(node)) == len(workers) + 1, "and the master"
    wait_and_check_all_written(run, paced)
    assert run.snapshot().restarts == len(workers)


@on_ray_only_if_long
def test_an_unknown_node_cannot_be_killed(submit: Submit) -> None:
    run = submit(chain(), Layout.PACK)
    with pytest.raises(ClusterError, match="nowhere"):
        run.kill_node("nowhere")


# ---- injected faults ----------------------------------------------------------------------------


@on_ray_only_if_long
def test_injected_errors_are_raised_until_they_end(submit: Submit, paced: Paced) -> None:
    run = submit(chain(paced, attempts_max=1_000))
    run.disturb(InjectedFaults(raises=(Raise(component="relay"),)))
    latest = until(run, lambda snapshot: snapshot.component("numbers").failed > 5)
    assert set(latest.component("numbers").causes) == {"exception"}
    (relay,) = run.plan.tasks_of("relay")
    until(run, lambda _: arrived(run) == sent(run, relay.id))  # before the first error
    before = len(written(run))
    pass_time(run, 0.5)
    assert len(written(run)) == before, "some records get through"
    run.disturb(InjectedFaults())
    wait_and_check_all_written(run, paced)


@on_ray_only_if_long
def test_an_injected_delay_lasts_until_it_ends(submit: Submit) -> None:
    run = submit(chain(Paced(TOTAL, 0.1), workers=1), Layout.PACK, active=False)
    run.disturb(InjectedFaults(slows=(SlowTask(component="sink", seconds=0.5),)))
    begun_s = run.now()
    run.activate()  # reaches the only worker after the fault
    until(run, lambda snapshot: snapshot.component("sink").executed >= 3)
    assert run.now() - begun_s >= 2 * 0.5
    run.disturb(InjectedFaults())
    healed_s = run.now()
    wait_and_check_all_written(run)
    assert run.now() - healed_s < (TOTAL - 3) * 0.5


def test_nothing_passes_a_link_that_drops_all_until_the_fault_ends(
    submit: Submit, paced: Paced
) -> None:
    run = submit(
        chain(paced, internals=Internals(peer_link_retry_s=0.2)), Layout.ISOLATE, active=False
    )
    run.disturb(InjectedFaults(links=(Link(source="relay", target="sink", drop=1.0),)))
    pass_time(run, 1.0)  # it reaches all workers before the first item is emitted
    run.activate()
    until(run, lambda snapshot: snapshot.component("relay").executed >= 1)
    pass_time(run, 1.0)
    assert written(run) == set()
    run.disturb(InjectedFaults())
    wait_and_check_all_written(run, paced)


# ---- the lifecycle ------------------------------------------------------------------------------


def test_nothing_is_emitted_before_activation_or_while_deactivated(
    submit: Submit,
) -> None:
    run = submit(chain(Paced(100_000, 1_000.0)), active=False)
    pass_time(run, 0.5)
    assert run.snapshot().state == State.INACTIVE
    assert run.snapshot().component("numbers").emitted == 0
    run.activate()
    until(run, lambda snapshot: acked(snapshot) > 5)
    run.deactivate()
    still = until(run, lambda s: all(w.idle and w.at_rest for w in s.workers.values()))
    pass_time(run, 1.0)
    assert run.snapshot().component("numbers").emitted == still.component("numbers").emitted
    run.activate()
    until(run, lambda snapshot: acked(snapshot) > acked(still))


def test_a_drain_finishes_pending_messages_and_emits_no_new_ones(submit: Submit) -> None:
    run = submit(chain(Paced(100_000, 1_000.0)))
    until(run, lambda snapshot: acked(snapshot) > 5)
    run.drain()
    assert run.wait(PATIENCE_S)
    counts = run.snapshot().component("numbers")
    assert counts.emitted == counts.acked == len(written(run)) < 100_000


@on_ray_only_if_long
def test_a_rebalance_of_running_tasks_loses_nothing(submit: Submit, paced: Paced) -> None:
    run = submit(chain(paced, sinks=2, workers=2), Layout.PACK)
    assert run.plan.workers == [0, 1]
    until(run, lambda snapshot: acked(snapshot) > 5)
    run.rebalance(workers=3, waits=False)
    until(run, lambda snapshot: len(snapshot.workers) == 3)
    assert run.plan.workers == [0, 1, 2]
    run.rebalance(workers=1)
    assert len(run.plan.workers) == 1
    wait_and_check_all_written(run, paced)
    assert set().union(*run.results("sink")) == set(range(paced.total))
    assert run.snapshot().restarts == 0


def test_a_topology_continues_from_a_savepoint_with_its_positions_and_states(
    submit: Submit, paced: Paced, go: Path
) -> None:
    run = submit(chain(paced, sinks=2, workers=2), Layout.PACK)
    until(run, lambda snapshot: acked(snapshot) > 5)
    savepoint = run.keep()
    run.kill(0.0)
    go.touch()
    again = submit(chain(paced, sinks=2, workers=1), Layout.PACK, resume=savepoint)
    assert again.wait(PATIENCE_S)
    assert set().union(*again.results("sink")) == set(range(paced.total))
    assert 0 < acked(again.snapshot()) < paced.total - 5, "acked messages are not emitted again"


def test_kill_reports_the_counts_and_stops_the_topology(submit: Submit) -> None:
    run = submit(chain(Paced(100_000, 1_000.0)))
    until(run, lambda snapshot: acked(snapshot) > 5)
    report = run.kill()
    counts = report.spouts["numbers"]
    assert counts.acked == counts.emitted > 5
    assert report.unsettled == 0
    check_is_stopped(run)


@on_ray_only_if_long
def test_impossible_operations_are_refused_with_the_possible_ones(submit: Submit) -> None:
    run = submit(chain(Paced(TOTAL, 0.1)), Layout.PACK)
    assert run.wait(PATIENCE_S)
    for refused in (run.activate, run.deactivate, run.rebalance):
        with pytest.raises(LifecycleError, match=r"is finished.*possible are: drain, kill"):
            refused()


@on_ray_only_if_long
def test_a_second_stop_does_nothing_and_a_stopped_run_answers_nothing(submit: Submit) -> None:
    run = submit(chain(), Layout.PACK)
    run.stop()
    run.stop()
    check_is_stopped(run)


def check_is_stopped(run: Run) -> None:
    for call in (run.snapshot, run.finished, run.wait, run.activate, run.drain, run.kill_master):
        with pytest.raises(ClusterError, match="was stopped"):
            call()
    with pytest.raises(ClusterError, match="was stopped"):
        run.disturb(InjectedFaults())
    with pytest.raises(ClusterError, match="was stopped"):
        run.history()


@on_ray_only_if_long
def test_a_name_is_taken_until_its_topology_is_stopped(submit: Submit) -> None:
    run = submit(chain(), Layout.PACK)
    with pytest.raises(ClusterError, match="'chain' is there already"):
        submit(chain(), Layout.PACK)
    submit(chain(name="other"), Layout.PACK).stop()
    run.stop()
    submit(chain(Paced(TOTAL, 0.1)), Layout.PACK).wait(PATIENCE_S)
