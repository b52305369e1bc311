"""Which partitions and tasks windows wait for: idle ones are passed over, and no further."""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from typing import Any

import numpy as np

from sunshower import (
    Context,
    LogSpout,
    Polled,
    Spout,
    Topology,
    Unavailable,
    collect,
    count,
    sum_,
    tumbling,
)
from sunshower.simulation.cluster import SimCluster
from sunshower.topologies.operators.windows.watermarks import PartitionTimes, ReachedTime, Watermark
from tests.topologies.operators.kinds import Kept
from tests.topologies.operators.windows.test_windows import Click


class TimesRig:
    """Partition times that are looked at each second."""

    def __init__(self, *partitions: int, idle_s: float | None = None) -> None:
        self.times, self.read, self.now = PartitionTimes(idle_s), list(partitions), 0.0
        self.at_end: dict[int, float] = {}

    def wait(self, seconds: int, at_end: Collection[int], **times: float) -> None:
        """Look each second. `at_end`: partitions whose fetches end at their end; `p0=`: partition
        0 emits a record with this time each second."""
        for _ in range(seconds):
            self.now += 1.0
            for name, time in times.items():
                self.times.emitted(int(name[1:]), time, self.now)
            self.at_end = dict.fromkeys(at_end, self.now)
            self.times.look(self.read, self.at_end, 0, self.now)


def test_a_partition_is_passed_over_after_30_s_of_fetches_at_its_end() -> None:
    rig = TimesRig(0, 1)
    rig.wait(1, [], p0=10.0, p1=5.0)
    rig.wait(29, [1], p0=50.0)
    assert rig.times.lowest == 5.0
    rig.wait(3, [1], p0=50.0)
    assert rig.times.lowest == 50.0


def test_the_time_until_a_silent_partition_is_passed_over_is_as_declared() -> None:
    rig = TimesRig(0, 1, idle_s=5.0)
    rig.wait(1, [], p0=10.0, p1=5.0)
    rig.wait(4, [1], p0=50.0)
    assert rig.times.lowest == 5.0
    rig.wait(3, [1], p0=50.0)
    assert rig.times.lowest == 50.0


def test_a_partition_that_was_not_read_to_its_end_is_never_passed_over() -> None:
    rig = TimesRig(0, 1)
    rig.wait(1, [], p0=10.0, p1=5.0)
    rig.wait(300, [], p0=50.0)
    assert rig.times.lowest == 5.0
    assert rig.times.slowest is not None
    assert rig.times.slowest[0] == 1


def test_an_idle_partition_is_passed_over_only_up_to_its_last_empty_fetch() -> None:
    rig = TimesRig(0, 1)
    rig.wait(1, [], p0=10.0, p1=5.0)
    rig.wait(40, [1], p0=50.0)
    rig.wait(100, [], p0=90.0)  # its broker is away
    assert rig.times.lowest == 50.0
    rig.wait(29, [1], p0=90.0)
    assert rig.times.lowest == 50.0, "the 30 s begin again after an outage"
    rig.wait(4, [1], p0=90.0)
    assert rig.times.lowest == 90.0


def test_the_times_of_other_idle_partitions_do_not_hold_one_back() -> None:
    rig = TimesRig(0, 1, 2)
    rig.wait(1, [], p0=10.0, p1=5.0, p2=7.0)
    rig.wait(33, [1, 2], p0=50.0)
    assert rig.times.lowest == 50.0
    rig.wait(40, [0, 1, 2])
    assert rig.times.lowest == 50.0
    assert rig.times.is_idle


def test_a_partition_without_a_record_yet_holds_windows_back_for_30_s() -> None:
    rig = TimesRig(0, 1)
    rig.wait(29, [1], p0=10.0)
    assert rig.times.lowest == -inf
    rig.wait(4, [1], p0=10.0)
    assert rig.times.lowest == 10.0


def test_a_partition_that_is_lost_holds_windows_back_until_another_task_has_it() -> None:
    rig = TimesRig(0, 1)
    rig.wait(1, [], p0=10.0, p1=5.0)
    rig.times.left(1, 3.0, rig.now)  # with a message that was not processed
    rig.read = [0]
    rig.wait(29, [], p0=50.0)
    assert rig.times.lowest == 3.0
    assert not rig.times.is_idle
    rig.wait(2, [], p0=50.0)
    assert rig.times.lowest == 50.0


def test_a_partition_that_comes_back_begins_anew() -> None:
    """It is read again from the committed offset."""
    rig = TimesRig(0, 1)
    rig.wait(1, [], p0=10.0, p1=90.0)
    rig.times.left(1, inf, rig.now)
    rig.wait(1, [], p0=95.0)
    assert rig.times.lowest == -inf
    rig.wait(1, [], p0=95.0, p1=20.0)
    assert rig.times.lowest == 20.0


def test_a_task_without_partitions_is_idle_at_once() -> None:
    times = PartitionTimes()
    times.look([], {}, 7, 1.0)
    assert times.is_idle
    assert times.confirmed == 7


def mark(task: int, number: int, reached: float, **more: Any) -> Watermark:
    fields = {"idle": False, "ended": False, "pending": inf, "life": 1} | more
    return Watermark(
        task, number=number, attempt=1, confirmed=number - 1, reached=reached, **fields
    )


def test_an_idle_task_is_passed_over_up_to_what_others_had_reached_before_its_fetch() -> None:
    reached = ReachedTime(2)
    reached.hear(mark(0, 1, 10.0))
    reached.hear(mark(1, 1, 5.0, idle=True))
    assert reached.time(0.0) == 5.0
    reached.hear(mark(0, 2, 50.0))
    reached.hear(mark(1, 2, 5.0, idle=True, fetched=1))
    assert reached.time(0.0) == 10.0
    reached.hear(mark(0, 3, 90.0))
    assert reached.time(0.0) == 10.0, "no fetch has been confirmed since"
    reached.hear(mark(1, 3, 5.0, idle=True, fetched=2))
    assert reached.time(0.0) == 50.0


def test_a_task_that_is_replaced_holds_windows_back() -> None:
    reached = ReachedTime(2)
    for number in range(1, 4):
        reached.hear(mark(0, number, 50.0))
        reached.hear(mark(1, number, 5.0, idle=True, fetched=number - 1))
    assert reached.time(0.0) == 50.0
    for number in range(4, 400):
        reached.hear(mark(0, number, 90.0))
    assert reached.time(0.0) == 50.0
    reached.hear(mark(1, 1, -inf, life=2))
    assert reached.time(0.0) == -inf
    reached.hear(mark(1, 2, 60.0, life=2))
    assert reached.time(0.0) == 60.0


def test_an_old_life_of_an_idle_task_passes_nothing_over_in_the_next() -> None:
    reached = ReachedTime(2)
    for number in (1, 2):
        reached.hear(mark(0, number, 50.0))
        reached.hear(mark(1, number, 5.0, idle=True, fetched=number - 1))
    reached.hear(mark(1, 1, -inf, life=2, idle=True, fetched=1))
    assert reached.time(0.0) == -inf


def test_a_partition_at_its_end_is_told_apart_from_those_that_have_records() -> None:
    rig = TimesRig(0, 1)
    rig.wait(1, [], p0=10.0, p1=5.0)
    rig.times.look([0, 1], {}, 7, rig.now + 0.5)
    rig.wait(1, [1], p0=50.0)
    assert rig.times.emptied == (7, 50.0)
    rig.times.left(0, 3.0, rig.now)
    assert rig.times.emptied[1] == 3.0
    rig = TimesRig()
    rig.times.look([], {}, 9, 1.0)
    assert rig.times.emptied == (9, inf)


def test_a_table_at_its_end_has_reached_what_the_stream_had_reached_before_its_fetch() -> None:
    reached = ReachedTime(3, tables=["table"])
    table = {"sender": "table", "busy": inf}
    reached.hear(mark(0, 1, 10.0))
    for number in (1, 2):  # task 2 has no partition
        reached.hear(mark(1, number, 5.0, **table))
        reached.hear(mark(2, number, -inf, **table))
        assert reached.time(0.0) == -inf
    reached.hear(mark(0, 2, 50.0))
    for number in (3, 4):
        reached.hear(mark(1, number, 5.0, **table, emptied=2))
        reached.hear(mark(2, number, -inf, **table, emptied=2))
        assert reached.time(0.0) == 10.0
    reached.hear(mark(1, 5, 5.0, **table | {"busy": 20.0}, emptied=4))
    reached.hear(mark(2, 5, -inf, **table, emptied=4))
    assert reached.time(0.0) == 20.0, "another partition of it has records"
    reached.hear(mark(1, 6, 5.0, **table, emptied=4, pending=15.0))
    assert reached.time(0.0) == 15.0, "a change is not processed"
    reached.hear(mark(1, 7, 5.0, **table, emptied=4))
    assert reached.time(0.0) == 50.0
    reached.hear(mark(1, 8, 5.0, **table, emptied=0))
    assert reached.time(0.0) == 5.0, "nothing is known of its end"


class Half(LogSpout[Click]):
    """Partition 0 has a click each second. That of partition 1 from second 10 on wait until its
    broker is back, after second 50."""

    tells = True

    def open(self, context: Context) -> None:
        self.clock, self.begun_s, self.read = context.clock, context.clock.now(), [0, 0]
        self.at_end: dict[int, float] = {}

    def poll(self, limit: int) -> Polled[Click]:
        now = self.clock.now()
        second = int(now - self.begun_s)
        ends = [min(second, 60), min(second, 60) if second < 10 or second > 50 else self.read[1]]
        numbers, clicks = list[int](), list[Click]()
        for part, end in enumerate(ends):
            while self.read[part] < end and len(numbers) < limit:
                numbers.append(part << 48 | self.read[part])
                clicks.append(Click("ab"[part], float(self.read[part])))
                self.read[part] += 1
        is_back = second < 10 or second > 50
        self.at_end = {
            part: now for part in (0, 1) if self.read[part] == ends[part] and (is_back or not part)
        }
        return Polled(np.array(numbers, np.int64), clicks, ended=self.read == [60, 60])

    def partitions_read(self) -> list[int]:
        return [0, 1]

    def partitions_of(self, numbers: Any) -> Any:
        return numbers >> 48

    def partitions_at_end(self) -> Any:
        return self.at_end if self.tells else None


class CannotTell(Half):
    tells = False


class Away(Spout[Click]):
    """Its dependency is away from second 10 to second 50, and its clicks are read after that."""

    def open(self, context: Context) -> None:
        self.clock = context.clock
        self.context = context
        self.begun_s = context.clock.now()
        self.next = 0

    def next_tuple(self, out: Any) -> None:
        second = int(self.clock.now() - self.begun_s)
        if self.context.index == 1 and 10 <= second <= 50:
            raise Unavailable("its broker")
        for at in range(self.next, min(second, 60)):
            out.emit(Click("ab"[self.context.index], float(at)), at)
        self.next = min(second, 60)
        if self.next == 60:
            out.finish()


def late_clicks(source: Any, tasks: int = 1, idle_s: float | None = None) -> tuple[int, int]:
    """The numbers of clicks in windows, and of late ones."""
    topology = Topology("clicks")
    clicks = topology.spout("clicks", source, parallelism=tasks, idle_s=idle_s)
    window = tumbling(seconds=5, field="at", late=2)
    rows = clicks.window(window, collect("at"))
    rows.shuffle().bolt("kept", Kept)
    rows.late.shuffle().bolt("late", Kept)
    with SimCluster(1) as cluster:
        run = cluster.submit(topology.graph())
        assert run.wait(600.0)
        rows_of = {name: run.results(name)[0] for name in ("kept", "late")}
    counts = [sum(len(row[1]) for row in rows_of[name]) for name in ("kept", "late")]
    return counts[0], counts[1]


def test_records_after_an_outage_of_one_partition_are_not_late() -> None:
    assert late_clicks(Half()) == (120, 0)


def test_a_source_that_cannot_tell_is_passed_over_after_30_s() -> None:
    on_time, late = late_clicks(CannotTell())
    assert on_time + late == 120
    assert late > 5


def test_the_declaration_of_a_spout_says_when_a_silent_source_is_passed_over() -> None:
    assert late_clicks(CannotTell(), idle_s=60.0) == (120, 0)


def test_records_after_an_outage_of_one_task_are_not_late() -> None:
    assert late_clicks(Away(), tasks=2) == (120, 0)


def test_an_outage_holds_back_all_stages_behind_it_and_status_says_so() -> None:
    topology = Topology("clicks")
    clicks = topology.spout("clicks", Away(), parallelism=2)
    parts = clicks.window(tumbling(seconds=5, field="at"), count(), name="parts")
    whole = parts.window(tumbling(seconds=20, field="window"), sum_("count"), name="whole")
    whole.shuffle().bolt("kept", Kept)
    whole.late.shuffle().bolt("late", Kept)
    with SimCluster(1) as cluster:
        run = cluster.submit(topology.graph())
        run.wait(30.0)
        (why,) = run.snapshot().watermark_holds("whole")
        assert run.wait(600.0)
        rows = {name: sorted(run.results(name)[0]) for name in ("kept", "late")}
    assert why == "task 2 of clicks: the task waits for a dependency"
    assert rows == {"kept": [(20, 40), (40, 40), (60, 40)], "late": []}
