"""The queue for slots of Spark is fair, and jobs of killed tasks are cancelled (without Spark)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from sunshower.spark_integration.sessions.session_host import Job, JobQueue, RunningJobs
from sunshower.spark_integration.sessions.spark_port import BatchInfo, SparkStep


def job(id: str, topology: str = "t", task: str = "") -> Job:
    return Job(SparkStep(print), [], BatchInfo(id, 1, topology=topology, task=task))


# ---- the queue ----------------------------------------------------------------------------------


def queue(*topologies: str) -> JobQueue:
    found = JobQueue()
    for number, topology in enumerate(topologies):
        found.put(job(str(number), topology))
    return found


def served(found: JobQueue) -> Job:
    job = found.next()
    assert job is not None
    return job


def test_jobs_of_one_topology_are_served_in_order() -> None:
    found = queue("a", "a", "a")
    assert [served(found).batch.id for _ in range(3)] == ["0", "1", "2"]


def test_the_topology_with_fewer_running_jobs_is_served_next() -> None:
    found = queue("a", "a", "a", "a", "b", "b")
    first = [served(found) for _ in range(4)]
    assert [one.batch.topology for one in first] == ["a", "b", "a", "b"]
    found.put(job("6", "b"))
    for one in first[1::2]:
        found.end(one)
    assert served(found).batch.topology == "b"


def test_a_job_that_ends_twice_ran_once() -> None:
    found = queue("a", "a", "a", "b")
    first, other = served(found), served(found)
    assert (first.batch.topology, other.batch.topology) == ("a", "b")
    assert [found.end(other) for _ in range(2)] == [True, False]
    found.put(job("4", "b"))
    assert [served(found).batch.topology for _ in range(2)] == ["b", "a"]


def test_a_closed_queue_serves_what_is_in_it() -> None:
    found = queue("a")
    found.close()
    assert not found.put(job("1"))
    assert served(found).batch.id == "0"
    assert (found.next(), found.next()) == (None, None)


def test_a_waiting_slot_is_woken() -> None:
    found = queue()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(found.next)
        found.put(job("0"))
        assert waiting.result(30.0) is not None
        ended = pool.submit(found.next)
        found.close()
        assert ended.result(30.0) is None


# ---- jobs of tasks that were killed -------------------------------------------------------------


def added(
    jobs: RunningJobs, number: str, life: str, task: str = "spark-0", topology: str = "t"
) -> Job:
    made = job(number, topology, task)
    jobs.add(number, made, life)
    return made


def cancelled(*jobs: Job) -> list[bool]:
    return [job.done() for job in jobs]


def test_the_next_life_of_a_task_cancels_the_jobs_of_its_former_lives_alone() -> None:
    jobs = RunningJobs()
    killed = [added(jobs, number, "first") for number in ("1", "2")]
    others = [
        added(jobs, "3", "first", task="spark-1"),
        added(jobs, "4", "first", topology="another"),
    ]
    assert not any(cancelled(*killed, *others))
    again = [added(jobs, number, "second") for number in ("5", "6")]
    assert all(cancelled(*killed))
    assert not any(cancelled(*others, *again))


def test_a_late_job_of_a_former_life_is_cancelled() -> None:
    jobs = RunningJobs()
    added(jobs, "1", "first")
    there, late = added(jobs, "2", "second"), added(jobs, "3", "first")
    assert cancelled(late, there, added(jobs, "4", "second")) == [True, False, False]
    last = added(jobs, "5", "third")
    assert cancelled(there, last) == [True, False]


def test_a_job_is_cancelled_by_its_number_while_it_runs_or_before_it_arrives() -> None:
    jobs = RunningJobs()
    ended, there = added(jobs, "1", "first"), added(jobs, "2", "first")
    jobs.remove("1")
    for number in ("1", "2", "3"):
        jobs.cancel(number)
    assert cancelled(ended, there, added(jobs, "3", "first")) == [False, True, True]
    assert cancelled(added(jobs, "4", "second"), ended) == [False, False]


def test_batches_without_a_task_are_not_cancelled() -> None:
    jobs = RunningJobs()
    there = [added(jobs, life, life, task="") for life in ("first", "second", "first ")]
    assert not any(cancelled(*there))
