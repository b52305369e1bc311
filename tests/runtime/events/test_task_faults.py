"""Tests of faults injected into tasks: user code that raises, is slow or has an outage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from sunshower import Cause, Spout, Topology
from sunshower.clock import SystemClock
from sunshower.errors import TopologyFailed
from sunshower.outages import is_unavailable
from sunshower.runtime.control.events import DesiredState
from sunshower.runtime.events.event_log import What
from sunshower.runtime.events.health import Standing
from sunshower.runtime.events.injected_faults import (
    NO_FAULTS,
    InjectedFaults,
    Raise,
    SlowTask,
    faults_of,
)
from sunshower.runtime.plan import ACKER, Layout, make_plan
from sunshower.runtime.tasks.flight_recorder import Recorder
from sunshower.runtime.tracking.ids import U64, seeded
from sunshower.runtime.worker import Worker
from tests.runtime.levels import (
    BAD,
    COUNT,
    Automatic,
    Columns,
    FailsOnce,
    Manual,
    Number,
    Own,
    Rows,
    Table,
    chain,
    sink,
)
from tests.runtime.recorded import Alone

bolts = pytest.mark.parametrize(
    "bolt", [Automatic, Manual, Table], ids=["process", "execute", "batch"]
)
spouts = pytest.mark.parametrize("spout", [Rows, Columns, Own], ids=["rows", "columns", "own"])


def start(spout: Any, bolt: Any, injected: InjectedFaults, seed: int = 0, **settings: Any) -> Alone:
    run = Alone(chain(spout, bolt, **settings), seed=seed)
    run.worker.desired_state(DesiredState(injected=injected))
    return run


def healthy(bolt: type[FailsOnce]) -> FailsOnce:
    """A bolt that does not fail by itself."""
    instance = bolt()
    instance.failed = True
    return instance


def raising(component: str, probability: float = 1.0, **where: Any) -> InjectedFaults:
    return InjectedFaults(
        raises=(Raise(component=component, probability=probability, where=where or None),)
    )


def slow(component: str, seconds: float, index: int | None = None) -> InjectedFaults:
    return InjectedFaults(slows=(SlowTask(component=component, seconds=seconds, index=index),))


def heal(run: Alone) -> None:
    run.worker.desired_state(DesiredState())
    run.run()
    done = Counter(run.values(What.COMPLETED))
    assert set(done.values()) == {1}
    run.replay()


# ---- bolts that raise ---------------------------------------------------------------------------


@bolts
def test_chosen_record_fails_and_its_outputs_are_not_sent(bolt: type[FailsOnce]) -> None:
    run = start(Rows(), healthy(bolt), raising("bolt", n=BAD))
    run.work()
    first = next(row.root for row in run.rows(What.EMITTED) if row.value == BAD)
    assert first in {row.root for row in run.rows(What.REFUSED, task=run.id("bolt"))}
    assert first not in {row.root for row in run.rows(What.SENT, task=run.id("bolt"))}
    assert {row.detail for row in run.rows(What.REFUSED)} == {Cause.EXCEPTION}
    if bolt is not Table:
        assert sorted(run.values(What.COMPLETED)) == sorted({*range(COUNT)} - {BAD})
    heal(run)
    assert sorted(run.values(What.COMPLETED)) == list(range(COUNT))


@bolts
def test_failure_names_the_bolt_and_says_that_an_experiment_raised_it(
    bolt: type[FailsOnce],
) -> None:
    failures = []

    class NotesFailures(Rows):
        def fail(self, message_id: int, failure: Any) -> None:
            failures.append(failure)

    run = start(NotesFailures(), healthy(bolt), raising("bolt", n=BAD))
    run.work()
    assert {(f.component, f.task, f.exception, f.cause) for f in failures} == {
        ("bolt", 0, "InjectedError", Cause.EXCEPTION)
    }
    assert "an experiment raises this in the place of the code of bolt[0]" in failures[0].reason


def test_table_with_one_chosen_row_fails_as_a_whole() -> None:
    run = start(Columns(), healthy(Table), raising("bolt", n=BAD))
    run.work()
    bad = next(row.root for row in run.rows(What.EMITTED) if row.value == BAD)
    (table,) = [e for e in run.of(What.DELIVERED, run.id("bolt")) if bad in e.roots]
    refused = next(e for e in run.of(What.REFUSED) if bad in e.roots)
    assert refused.roots.tolist() == table.roots.tolist()
    heal(run)


@bolts
@pytest.mark.parametrize("probability", [0.0, 0.4, 1.0])
def test_records_are_chosen_by_chance(bolt: type[FailsOnce], probability: float) -> None:
    rounds = []
    for seed in (1, 2, 2):
        run = start(Rows(), healthy(bolt), raising("bolt", probability), seed=seed)
        run.work()
        refused = {row.root for row in run.rows(What.REFUSED)}
        rounds.append(refused)
        share = len(refused) / COUNT
        assert share == probability if probability in (0.0, 1.0) else 0 < share <= 1
    assert rounds[1] == rounds[2], "the same seed chooses the same"


def test_share_of_chosen_records_is_about_the_probability() -> None:
    class Many(Rows):
        def records(self) -> Any:
            return map(Number, range(2000))

    run = start(Many(), healthy(Automatic), raising("bolt", 0.25))
    run.work()
    failed = sum((entry.attempts == 1).sum() for entry in run.of(What.FAILED))
    assert failed / 2000 == pytest.approx(0.25, abs=0.04)
    heal(run)


def test_sink_raises_too_and_each_of_several_rules_applies() -> None:
    rules = (Raise(component="sink", where={"n": 1}), Raise(component="sink", where={"n": 2}))
    run = start(Rows(), healthy(Automatic), InjectedFaults(raises=rules))
    run.work()
    numbers = {row.root: row.value for row in run.rows(What.EMITTED)}
    refused = {numbers[row.root] for row in run.rows(What.REFUSED, task=run.id("sink"))}
    assert refused == {1, 2}
    heal(run)


def test_records_are_chosen_only_if_all_fields_match() -> None:
    for where in ({"n": BAD, "m": 1}, {"word": "a"}, {"n": COUNT}):
        run = start(Rows(), healthy(Automatic), raising("bolt", **where))
        run.run()
        assert not run.rows(What.REFUSED)


def test_only_tasks_of_a_current_rule_have_faults() -> None:
    run = start(Rows(), healthy(Automatic), raising("bolt", 0.5))
    tasks = [*run.worker._spouts, *run.worker._wired.bolts.values()]
    assert {t.task.component for t in tasks if t.instrument.faults is not NO_FAULTS} == {"bolt"}
    run.worker.desired_state(DesiredState(injected=slow("sink", 1)))
    assert {t.task.component for t in tasks if t.instrument.faults is not NO_FAULTS} == {"sink"}
    run.worker.desired_state(DesiredState())
    assert all(task.instrument.faults is NO_FAULTS for task in tasks)


def test_check_of_mutations_also_covers_bolts_with_faults() -> None:
    class Lists(Spout[Any]):
        emits = ("words",)

        def records(self) -> Iterator[Any]:
            yield (["a"],)

    def changes_record(record: Any) -> None:
        record[0].append("b")

    topology = Topology("t", ackers=1, workers=1, check_mutation=True)
    topology.spout("lists", Lists()).shuffle().bolt("bolt", changes_record)
    run = Alone(topology)
    run.worker.desired_state(DesiredState(injected=slow("bolt", 0.1)))
    with pytest.raises(TopologyFailed, match=r"bolt\[0\] changed a record"):
        run.run()


def test_record_is_noted_for_the_flight_recorder_before_its_fault() -> None:
    run = start(Rows(), healthy(Automatic), slow("bolt", 1.0))
    (bolt, _) = run.worker._wired.bolts.values()
    noted: list[tuple[float, int]] = []
    note = lambda roots: noted.append((run.clock.now(), int(roots[0])))  # noqa: E731
    bolt.rare = bolt.rare._replace(note=note)
    run.run()
    assert [root for _, root in noted] == [row.root for row in run.rows(What.EMITTED)]
    assert [at_s for at_s, _ in noted] == [float(second) for second in range(COUNT)]


# ---- spouts that raise --------------------------------------------------------------------------


def spout_of(run: Alone) -> Any:
    (spout,) = run.worker._spouts
    return spout


@pytest.mark.parametrize("bad", [0, BAD, COUNT - 1])
@pytest.mark.parametrize("spout", [Rows, Columns], ids=["rows", "columns"])
def test_source_raises_in_place_of_a_record_and_continues_there_after_the_fault(
    spout: Any, bad: int
) -> None:
    run = start(spout(), healthy(Automatic), raising("numbers", n=bad))
    run.work()
    assert run.values(What.EMITTED) == list(range(bad)), "the records before it are emitted"
    assert spout_of(run).supervision.standing is Standing.WAITING
    assert spout_of(run).supervision.last.exception == "InjectedError"
    assert not run.worker.finished
    heal(run)
    assert run.values(What.EMITTED) == list(range(COUNT)), "no record is missing or emitted twice"
    assert spout_of(run).supervision.runs


@spouts
def test_source_that_raises_all_the_time_is_quarantined_like_any_other(spout: Any) -> None:
    run = start(spout(), healthy(Automatic), raising("numbers"))
    for _ in range(20):
        run.work()
        run.clock.advance(5.0)
    assert spout_of(run).supervision.is_quarantined
    assert not run.rows(What.EMITTED)


@spouts
def test_source_that_raises_at_times_loses_nothing(spout: Any) -> None:
    run = start(spout(), healthy(Automatic), raising("numbers", 0.3), task_errors_max=99)
    run.run()
    assert spout_of(run).supervision.health.errors > 0
    tracked = [n for n in range(COUNT) if n % 3 or spout is not Own]
    assert run.values(What.EMITTED) == tracked
    heal(run)


def test_next_tuple_that_has_emitted_a_chosen_record_raises_after_it() -> None:
    run = start(Own(), healthy(Automatic), raising("numbers", n=BAD))
    run.work()
    assert BAD in run.values(What.EMITTED)
    assert spout_of(run).supervision.health.errors == 1
    heal(run)


# ---- slow tasks ---------------------------------------------------------------------------------


class CallTimes(Recorder):
    """Measures the longest guarded call of each task."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.longest_s: Counter[int] = Counter()

    def begin(self, task: int, roots: U64, now: float) -> None:
        self.began = (task, now)

    def end(self) -> None:
        task, since_s = self.began
        took_s = self.clock.now() - since_s
        self.longest_s[task] = max(self.longest_s[task], took_s)


@bolts
def test_slow_bolt_takes_longer_for_each_record_and_its_service_time_is_known(
    bolt: type[FailsOnce],
) -> None:
    plan = make_plan(chain(Rows(), healthy(bolt)).graph(), Layout.PACK)
    here = Alone(chain(Rows(), healthy(bolt)))
    times = CallTimes(here.clock)
    worker = Worker(plan, 0, 1, seeded(0), here.clock, recorder=times)
    worker.desired_state(DesiredState(injected=slow("bolt", 0.5)))
    while not worker.finished:
        if wait_s := worker.step():
            here.clock.advance(wait_s)
    assert here.clock.now() == pytest.approx(COUNT * 0.5, abs=0.3)
    (middle,) = plan.tasks_of("bolt")
    assert times.longest_s[middle.id] >= 0.5, "within the guarded call"
    assert worker._wired.bolts[middle.id].service.slice_records == 1, "its service time is known"


def test_one_task_of_a_component_may_be_slow_and_several_delays_add_up() -> None:
    topology = Topology("t", ackers=1, workers=1)
    topology.spout("numbers", Rows()).all().bolt("bolt", sink, parallelism=2)
    run = Alone(topology)
    slows = (*slow("bolt", 0.25, index=1).slows, *slow("bolt", 0.5, index=1).slows)
    run.worker.desired_state(DesiredState(injected=InjectedFaults(slows=slows)))
    run.run()
    assert run.clock.now() == pytest.approx(COUNT * 0.75)
    run = Alone(topology)
    run.worker.desired_state(DesiredState(injected=slow("bolt", 0.25)))
    run.run()
    assert run.clock.now() == pytest.approx(2 * COUNT * 0.25)


@spouts
def test_slow_spout_takes_longer_for_each_record_that_it_emits(spout: Any) -> None:
    run = start(spout(), healthy(Automatic), slow("numbers", 0.5))
    run.run()
    assert run.clock.now() == pytest.approx(COUNT * 0.5, abs=0.1)
    assert spout_of(run).service.slice_records == 1


def test_slow_acker_takes_longer_for_each_report() -> None:
    reports = 0
    run = start(Rows(), healthy(Automatic), slow(ACKER, 0.5))
    (acker,) = run.worker._wired.ackers.values()
    apply = acker.apply

    def counted(*args: Any) -> Any:
        nonlocal reports
        reports += 1
        return apply(*args)

    acker.apply = counted  # type: ignore[method-assign]
    run.run()
    assert reports > 1
    assert run.clock.now() == pytest.approx(reports * 0.5)


# ---- dependencies that are unavailable ----------------------------------------------------------


@bolts
def test_injected_outage_fails_every_record_until_it_ends(
    bolt: type[FailsOnce],
) -> None:
    outage = InjectedFaults(raises=(Raise(component="bolt", unavailable=True),))
    run = start(Rows(), healthy(bolt), outage)
    run.work()
    assert not run.values(What.COMPLETED)
    heal(run)
    assert sorted(run.values(What.COMPLETED)) == list(range(COUNT))


def test_error_of_an_injected_outage_is_recognised_as_an_outage() -> None:
    rule = Raise(component="bolt", index=0, unavailable=True)
    plan = make_plan(chain(Rows(), healthy(Automatic)).graph(), Layout.ISOLATE)
    (task,) = plan.tasks_of("bolt")
    faults = faults_of(InjectedFaults(raises=(rule,)), task, SystemClock(), seeded(0))
    assert is_unavailable(faults.error)
    other = replace(rule, index=1)
    assert faults_of(InjectedFaults(raises=(other,)), task, SystemClock(), seeded(0)) is NO_FAULTS
