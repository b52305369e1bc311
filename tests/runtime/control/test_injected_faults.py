"""Injected faults: which are valid, how they are encoded, and what happens to packets and trees."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import numpy as np
import pytest

from sunshower import Topology
from sunshower.errors import ExperimentError
from sunshower.runtime.control import events
from sunshower.runtime.control.events import DesiredState
from sunshower.runtime.control.master import Master
from sunshower.runtime.control.master_state import MasterState
from sunshower.runtime.events.event_log import What
from sunshower.runtime.events.injected_faults import (
    WELL,
    InjectedFaults,
    Link,
    Raise,
    SlowTask,
    fate,
    flipped,
)
from sunshower.runtime.plan import ACKER, Layout, Plan, make_plan
from sunshower.runtime.tracking.ids import seeded
from sunshower.runtime.worker import Worker
from tests.runtime.levels import Automatic, Rows, chain
from tests.runtime.recorded import Alone

EVERYTHING = InjectedFaults(
    raises=(Raise(component="bolt", probability=0.5, where={"n": 3}), Raise(component="numbers")),
    slows=(SlowTask(component=ACKER, seconds=0.5), SlowTask(component="bolt", seconds=1, index=0)),
    links=(Link(source="numbers", target="bolt", drop=0.1), Link(delay=1.0, delay_s=2.0)),
    expirations=2,
)


def plan(topology: Topology | None = None, layout: Layout = Layout.PACK) -> Plan:
    return make_plan((topology or chain(Rows(), Automatic())).graph(), layout)


# ---- what is valid ------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-0.1, 1.1, 2, float("nan")])
def test_probability_is_between_0_and_1(value: float) -> None:
    with pytest.raises(ExperimentError, match="it must be a probability"):
        Raise(component="split", probability=value)
    for name in ("drop", "forget", "repeat", "corrupt", "delay"):
        odds: dict[str, Any] = {name: value}
        with pytest.raises(ExperimentError, match=f"the network: {name} is"):
            Link(**odds)


@pytest.mark.parametrize("value", [-1, float("inf"), float("nan")])
def test_duration_is_0_or_more_seconds(value: float) -> None:
    with pytest.raises(ExperimentError, match="slow: seconds is"):
        SlowTask(component="split", seconds=value)
    with pytest.raises(ExperimentError, match="the network: delay_s is"):
        Link(delay_s=value)


@pytest.mark.parametrize(
    "injected",
    [
        InjectedFaults(raises=(Raise(component="spilt"),)),
        InjectedFaults(slows=(SlowTask(component="spilt", seconds=1),)),
        InjectedFaults(links=(Link(source="spilt"),)),
        InjectedFaults(links=(Link(target="spilt"),)),
    ],
)
def test_unknown_component_is_refused_with_the_known_ones(injected: InjectedFaults) -> None:
    master = Master(plan())
    with pytest.raises(
        ExperimentError, match=f"'t' has no 'spilt' to disturb; it has: {ACKER}, bolt, numbers"
    ):
        master.apply(events.Disturb(injected), 0.0)
    assert master.desired_state.injected == InjectedFaults(), "refused faults are not injected"


def test_acker_cannot_raise_and_an_unknown_task_cannot_be_slow() -> None:
    master = Master(plan())
    with pytest.raises(ExperimentError, match="an acker runs no user code"):
        master.apply(events.Disturb(InjectedFaults(raises=(Raise(component=ACKER),))), 0.0)
    with pytest.raises(ExperimentError, match="no task 1 of 'bolt' to disturb"):
        master.apply(
            events.Disturb(InjectedFaults(slows=(SlowTask(component="bolt", seconds=1, index=1),))),
            0.0,
        )


def test_fields_are_compared_with_plain_values() -> None:
    injected = InjectedFaults(raises=(Raise(component="bolt", where={"n": object()}),))
    with pytest.raises(ExperimentError, match="must be plain values"):
        Master(plan()).apply(events.Disturb(injected), 0.0)


# ---- encoding -----------------------------------------------------------------------------------


@pytest.mark.parametrize("injected", [InjectedFaults(), EVERYTHING, InjectedFaults(expirations=1)])
def test_injected_faults_are_read_as_they_were_written(injected: InjectedFaults) -> None:
    assert InjectedFaults.from_fields(injected.to_fields()) == injected
    assert (
        InjectedFaults.from_fields(msgpack.unpackb(msgpack.packb(injected.to_fields()))) == injected
    )
    assert InjectedFaults.from_fields(json.loads(json.dumps(injected.to_fields()))) == injected


def test_injected_faults_are_false_if_there_are_none_or_only_expirations() -> None:
    assert not InjectedFaults()
    assert not InjectedFaults(expirations=3), "expirations happen once"
    assert EVERYTHING
    assert InjectedFaults(links=(Link(),))


def test_master_and_its_successor_have_the_injected_faults_in_the_desired_state() -> None:
    master = Master(plan())
    assert master.desired_state == DesiredState()
    master.apply(events.Disturb(EVERYTHING), 0.0)
    assert master.desired_state == DesiredState(injected=EVERYTHING)
    successor = Master(plan(), MasterState.from_bytes(master.stored.to_bytes()))
    assert successor.desired_state == DesiredState(injected=EVERYTHING)
    assert successor.apply(events.Hello(0), 0.0).answer.desired_state.injected == EVERYTHING, (
        "new lives get them too"
    )
    successor.apply(events.Disturb(InjectedFaults()), 0.0)
    assert successor.desired_state == DesiredState()


# ---- fates --------------------------------------------------------------------------------------


def test_link_without_faults_and_no_link_at_all_leave_a_packet_unchanged() -> None:
    dice = seeded(0)
    assert fate((), dice) == WELL
    assert all(fate((Link(),), dice) == WELL for _ in range(100))


def test_each_fault_of_probability_one_happens() -> None:
    dice = seeded(0)
    assert fate((Link(drop=1),), dice).delays_s == ()
    assert not fate((Link(drop=1),), dice).heard
    assert fate((Link(forget=1),), dice) == type(WELL)(heard=False)
    assert fate((Link(repeat=1),), dice).delays_s == (0.0, 0.0)
    assert fate((Link(corrupt=1),), dice) == type(WELL)(corrupt=True)
    late = [fate((Link(delay=1, delay_s=3),), dice).delays_s[0] for _ in range(2000)]
    assert np.mean(late) == pytest.approx(3, rel=0.1)


def test_fates_of_several_links_add_up() -> None:
    dice = seeded(0)
    both = fate((Link(repeat=1), Link(repeat=1, corrupt=1), Link(forget=1)), dice)
    assert (len(both.delays_s), both.corrupt, both.heard) == (3, True, False)
    drops = sum(not fate((Link(drop=0.5), Link(drop=0.5)), dice).delays_s for _ in range(2000))
    assert drops / 2000 == pytest.approx(0.75, abs=0.05)


def test_flipped_data_differs_in_one_bit() -> None:
    data, dice = bytes(range(32)), seeded(0)
    for _ in range(20):
        changed = flipped(data, dice)
        bits = [(a ^ b).bit_count() for a, b in zip(data, changed, strict=True)]
        assert sum(bits) == 1


# ---- which links a worker has -------------------------------------------------------------------


def fates(injected: InjectedFaults) -> dict[tuple[str, str], bool]:
    """(component, component) → whether packets between their workers are well; one task each."""
    here = plan(layout=Layout.ISOLATE)
    names = {worker: here.tasks_on(worker)[0].component for worker in here.workers}
    arrives = {}
    for worker in here.workers:
        core = Worker(here, worker, 1, seeded(worker), Alone(chain(Rows(), Automatic())).clock)
        core.desired_state(DesiredState(injected=injected))
        for peer in here.workers:
            if peer != worker:
                arrives[names[worker], names[peer]] = core.fate(peer) is WELL
    return arrives


def test_link_concerns_packets_from_its_source_to_its_target_and_no_others() -> None:
    links = fates(InjectedFaults(links=(Link(source="numbers", target="bolt", drop=1),)))
    assert {ends for ends, well in links.items() if not well} == {("numbers", "bolt")}


def test_link_to_an_acker_and_links_from_anywhere() -> None:
    links = fates(InjectedFaults(links=(Link(target=ACKER, forget=1),)))
    assert {ends for ends, well in links.items() if not well} == {
        (name, ACKER) for name in ("numbers", "bolt", "sink")
    }
    assert not any(fates(InjectedFaults(links=(Link(drop=1),))).values())
    assert all(fates(InjectedFaults()).values())


def test_fate_follows_the_faults_that_are_injected_now() -> None:
    here = plan(layout=Layout.ISOLATE)
    core = Worker(here, 0, 1, seeded(0), Alone(chain(Rows(), Automatic())).clock)
    assert core.fate(1) is WELL
    for link, delays in ((Link(drop=1), ()), (Link(repeat=1), (0.0, 0.0))):
        core.desired_state(DesiredState(injected=InjectedFaults(links=(link,))))
        assert core.fate(1).delays_s == delays
    core.desired_state(DesiredState())
    assert core.fate(1) is WELL


# ---- deadlines that expire ----------------------------------------------------------------------


def waiting(spout_pending: int | str = 8) -> Alone:
    """The pending table is full, and stays so: the bolt cannot be prepared."""

    class Never(Automatic):
        def prepare(self, context: Any) -> None:
            raise OSError("gone")

    run = Alone(chain(Rows(), Never, task_errors_max=99, spout_pending=spout_pending))
    for channel in run.worker._wired.channels.values():
        channel.window = 100
    run.work()
    return run


def test_all_pending_trees_time_out_once_for_each_expiration() -> None:
    run = waiting()
    emitted = len(run.rows(What.EMITTED))
    assert emitted == 8
    for number in (1, 1, 3, 2):
        run.worker.desired_state(DesiredState(injected=InjectedFaults(expirations=number)))
        if number == 1:
            assert len(run.rows(What.FAILED)) == emitted
    assert {cause for e in run.of(What.FAILED) for cause in e.detail} == {"timeout"}
    assert len(run.rows(What.FAILED)) == emitted, "nothing was pending then"
    run.clock.advance(0.2)
    run.work()
    run.worker.desired_state(DesiredState(injected=InjectedFaults(expirations=4)))
    again = run.of(What.FAILED)[-1]
    assert set(again.attempts.tolist()) == {2}


def test_new_life_ignores_expirations_before_its_start() -> None:
    run = waiting()
    master = Master(run.plan)
    master.apply(events.Disturb(InjectedFaults(expirations=2)), 0.0)
    run.worker.welcome(master.apply(events.Hello(0), 0.0).answer)
    run.work()
    assert not run.rows(What.FAILED)
    master.apply(events.Disturb(InjectedFaults(expirations=3)), 0.0)
    run.worker.desired_state(master.desired_state)
    assert len(run.rows(What.FAILED)) == 8


def test_expiration_counts_as_a_timeout_for_congestion_control() -> None:
    run = waiting("auto")
    (spout,) = run.worker._spouts
    assert spout.limit._congestion is not None
    spout.limit._congestion.limit = spout.pending.limit = 16
    run.worker.desired_state(DesiredState(injected=InjectedFaults(expirations=1)))
    assert spout.pending.limit == 8
