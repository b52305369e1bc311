"""Jobs of tasks that were killed, at a gateway that outlives them: pure, and no Spark."""

from __future__ import annotations

from dataclasses import dataclass

from sunshower.spark_integration.sessions.running_jobs import UnderWay
from sunshower.spark_integration.sessions.spark_port import BatchInfo


@dataclass
class Noted:
    """A job that notes whether it was cancelled."""

    batch: BatchInfo
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


def handed(
    under_way: UnderWay, number: str, life: str, task: str = "spark-0", topology: str = "t"
) -> Noted:
    job = Noted(BatchInfo(number, 1, topology=topology, task=task))
    under_way.add(number, job, life)
    return job


def test_the_next_life_of_a_task_ends_the_jobs_of_those_before_and_no_others() -> None:
    under_way = UnderWay()
    killed = [handed(under_way, number, "first") for number in ("1", "2")]
    others = [
        handed(under_way, "3", "first", task="spark-1"),
        handed(under_way, "4", "first", topology="another"),
    ]
    assert not any(one.cancelled for one in [*killed, *others])
    again = [handed(under_way, number, "second") for number in ("5", "6")]
    assert all(one.cancelled for one in killed)
    assert not any(one.cancelled for one in [*others, *again])


def test_what_a_former_life_has_asked_for_comes_to_nothing_when_it_comes_late() -> None:
    under_way = UnderWay()
    handed(under_way, "1", "first")
    there = handed(under_way, "2", "second")
    late = handed(under_way, "3", "first")
    assert late.cancelled
    assert not there.cancelled
    assert not handed(under_way, "4", "second").cancelled
    last = handed(under_way, "5", "third")
    assert there.cancelled
    assert not last.cancelled


def test_a_job_is_cancelled_by_its_number_while_it_is_there() -> None:
    under_way = UnderWay()
    ended, there = handed(under_way, "1", "first"), handed(under_way, "2", "first")
    under_way.remove("1")
    for number in ("1", "2", "none"):
        under_way.cancel(number)
    assert (ended.cancelled, there.cancelled) == (False, True)
    assert not handed(under_way, "3", "second").cancelled
    assert not ended.cancelled


def test_batches_of_nobody_are_nobody_s_orphans() -> None:
    under_way = UnderWay()
    jobs = [handed(under_way, life, life, task="") for life in ("first", "second", "first ")]
    assert not any(one.cancelled for one in jobs)


def test_a_word_that_comes_before_its_job_is_not_forgotten() -> None:
    under_way = UnderWay()
    under_way.cancel("1")
    assert handed(under_way, "1", "first").cancelled
    assert not handed(under_way, "2", "first").cancelled
