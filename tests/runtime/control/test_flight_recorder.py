"""What a flight recorder contains when its process has died, and which messages are charged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sunshower import BatchBolt, Bolt, Cause, Collector, Failure, Spout, Topology, Tuple
from sunshower.errors import TopologyFailed
from sunshower.runtime.control import events
from sunshower.runtime.plan import Layout, Plan, make_plan
from sunshower.runtime.tasks.flight_recorder import (
    ROOTS_MAX,
    STACK_MAX,
    CrashReport,
    FlightRecorder,
    read,
)
from sunshower.runtime.tracking.ids import NO_IDS, make_roots
from sunshower.simulation.worker import Killed
from tests.runtime.lives import RestartedWorker
from tests.runtime.network import Network
from tests.runtime.rig import Number

POISON = 33
COUNT = 80
ENDED = f"message {POISON} of spout 'numbers' failed 3 times.*in keep.*while executing it"


class Numbers(Spout[Number]):
    """Records the acks and failures of its messages in a log that outlives it."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def records(self) -> Iterator[Number]:
        return map(Number, range(COUNT))

    def ack(self, message_id: int) -> None:
        self.log.acks.append(message_id)

    def fail(self, message_id: int, failure: Failure) -> None:
        self.log.failures.append((message_id, failure))


class Log:
    """Shared by all lives of all tasks, however often they are copied."""

    def __init__(self) -> None:
        self.acks: list[int] = []
        self.failures: list[tuple[int, Failure]] = []
        self.deaths = 0
        self.deaths_max = 10**6

    def __deepcopy__(self, memo: Any) -> Log:
        return self

    def die(self) -> None:
        if self.deaths < self.deaths_max:
            self.deaths += 1
            raise Killed


class Automatic(Bolt[Number, None]):
    def __init__(self, log: Log) -> None:
        self.log = log

    def process(self, record: Number) -> None:
        if record.n == POISON:
            self.log.die()


class Generating(Bolt[Number, Number]):
    def __init__(self, log: Log) -> None:
        self.log = log

    def process(self, record: Number) -> Iterator[Number]:
        if record.n == POISON:
            self.log.die()
        yield record


class Manual(Bolt[Number, None]):
    def __init__(self, log: Log) -> None:
        self.log = log

    def execute(self, tuple: Tuple[Any], out: Collector[Any]) -> None:
        if tuple.record.n == POISON:
            self.log.die()
        out.ack(tuple)


class Columns(BatchBolt[Number, None]):
    def __init__(self, log: Log) -> None:
        self.log = log

    def process(self, table: pa.Table) -> None:
        if POISON in table["n"].to_pylist():
            self.log.die()


BOLTS = pytest.mark.parametrize("bolt", [Automatic, Generating, Manual, Columns])


def topology(bolt: Any, log: Log, **settings: Any) -> Topology:
    declared = Topology("t", message_timeout_s=10_000, **{"attempts_max": 3, **settings})
    declared.spout("numbers", Numbers(log)).shuffle().bolt("keep", bolt(log))
    return declared


# ---- the recorder -------------------------------------------------------------------------------


def make_recorder(life: int = 7) -> tuple[bytearray, FlightRecorder, Plan]:
    plan = make_plan(topology(Automatic, Log()).graph(), Layout.ISOLATE)
    buffer = bytearray(FlightRecorder.size_of(plan, 0))
    return buffer, FlightRecorder(buffer, life), plan


def test_process_that_died_between_two_calls_leaves_no_roots() -> None:
    buffer, recorder, _ = make_recorder()
    assert read(buffer, 3) == CrashReport(3, 7)
    recorder.begin(2, np.arange(5, dtype=np.uint64), 1.0)
    recorder.end()
    assert read(buffer, 3) == CrashReport(3, 7)


def test_process_that_died_in_a_call_leaves_its_task_and_its_roots() -> None:
    buffer, recorder, _ = make_recorder()
    roots = np.arange(5, dtype=np.uint64)
    recorder.begin(2, roots, 1.0)
    report = read(bytes(buffer), 3)
    assert report is not None
    assert (report.task, report.suspects.tolist(), report.stack) == (2, [0, 1, 2, 3, 4], "")


def test_of_a_very_large_batch_only_the_first_roots_are_noted() -> None:
    buffer, recorder, _ = make_recorder()
    recorder.begin(2, np.arange(ROOTS_MAX + 9, dtype=np.uint64), 1.0)
    report = read(buffer, 3)
    assert report is not None
    assert report.suspects.tolist() == list(range(ROOTS_MAX))


def test_of_a_very_long_stack_the_innermost_frames_are_kept() -> None:
    buffer, recorder, plan = make_recorder()
    recorder.begin(2, NO_IDS, 1.0)
    recorder.note_stack("x" * STACK_MAX + "the end")
    report = read(buffer, 3)
    assert report is not None
    assert report.stack.endswith("the end")
    assert len(report.stack) == STACK_MAX
    failure = report.failure(plan)
    assert (failure.cause, failure.component, failure.traceback) == (
        Cause.BLOCKED,
        "keep",
        report.stack,
    )


def test_call_is_known_while_it_runs() -> None:
    _, recorder, _ = make_recorder()
    assert recorder.running() is None
    recorder.begin(2, NO_IDS, 100.0)
    assert recorder.running() == (2, 100.0)
    recorder.end()
    assert recorder.running() is None


def test_roots_of_the_same_process_are_found_again_as_messages() -> None:
    buffer, recorder, _ = make_recorder()
    generations, numbers = recorder.tables(1, 9, 64)
    generations[[3, 4]], numbers[[3, 4]] = 2, [70, 71]
    slots = np.array([3, 4, 5])
    mine = make_roots(9, np.array([2, 1, 1], np.uint32), slots)  # 4 and 5 have other trees
    foreign = make_roots(8, np.array([2, 2, 2], np.uint32), slots)
    recorder.begin(2, np.concatenate([mine, foreign]), 1.0)
    report = read(buffer, 3)
    assert report is not None
    assert report.numbers == {1: (70,)}


def test_recorder_has_the_drawn_positions_of_its_spouts() -> None:
    buffer, recorder, _ = make_recorder()
    recorder.tables(1, 9, 64)
    recorder.tables(2, 9, 64)
    assert report_in(buffer).drawn == {}, "nothing was noted so far"
    recorder.drew(1, 0, 64)
    recorder.drew(1, 72, 80)
    recorder.drew(3, 5, 5)  # spout 3 has no table
    assert report_in(buffer).drawn == {1: (72, 80)}
    assert report_in(buffer).numbers == {}


def report_in(buffer: bytearray) -> CrashReport:
    report = read(buffer, 3)
    assert report is not None
    return report


def test_recorder_that_is_too_small_names_no_messages_but_works() -> None:
    _, recorder, plan = make_recorder()
    slots = plan.graph.config.spout_slots
    recorder.tables(1, 1, slots)
    generations, numbers = recorder.tables(2, 2, slots)
    assert (len(generations), len(numbers)) == (slots, slots)


@pytest.mark.parametrize("data", [b"", b"x", bytes(1 << 20)])
def test_other_files_give_no_crash_report(data: bytes) -> None:
    assert read(data, 0) is None


# ---- the charges --------------------------------------------------------------------------------


@BOLTS
def test_other_tuples_of_the_batch_are_charged_once_at_most(bolt: Any) -> None:
    log = Log()
    log.deaths_max = 2
    Network(make_plan(topology(bolt, log).graph(), Layout.ISOLATE)).run()
    assert set(log.acks) == set(range(COUNT))
    charged = [n for n, failure in log.failures if "while executing it" in failure.reason]
    assert log.deaths == 2
    assert max(charged.count(n) for n in range(COUNT) if n != POISON) <= 1


@BOLTS
def test_record_that_kills_the_process_of_its_own_spout_ends_the_topology(bolt: Any) -> None:
    log = Log()
    worker = RestartedWorker(topology(bolt, log, workers=1))
    with pytest.raises(TopologyFailed, match=ENDED):
        run_and_die(worker)
    assert log.deaths == 3


def run_and_die(worker: RestartedWorker) -> None:
    for _ in range(9):
        with pytest.raises(Killed):
            worker.run()
        worker.tell()
        worker.start()


def test_charges_of_settled_messages_are_removed() -> None:
    log = Log()
    log.deaths_max = 2
    worker = RestartedWorker(topology(Automatic, log, workers=1))
    for _ in range(2):
        with pytest.raises(Killed):
            worker.run()
        worker.start()
    assert worker.master.stored.suspects[1][POISON] == 2
    worker.run()
    assert worker.tell().done
    assert worker.master.stored.suspects == {1: {}}
    assert set(log.acks) == set(range(COUNT))


def test_crash_report_of_another_life_is_ignored() -> None:
    worker = RestartedWorker(topology(Automatic, Log(), workers=1))
    crash_report = CrashReport(0, 5, 2, NO_IDS.tobytes() + b"\1" * 8, "", {1: (3,)})
    worker.master.apply(events.Hello(0, crash_report), worker.clock.now())
    assert not worker.master.crash_reports
    assert not worker.master.stored.suspects
