"""The queue for slots of Spark is fair, and jobs of killed tasks are cancelled (without Spark)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from sunshower.spark_integration.sessions.session_host import Job, JobQueue, RunningJobs
from sunshower.spark_integration.sessions.spark_port import BatchInfo, SparkStep


def job(id: str, topology: str = "t", task: str = "") -> Job:
    return Job(SparkStep(print), [], BatchInfo(id, 1, topology=topology, task=task))


# ---- the queue ----------------------------------------------------------------------------------


def queue(*topologies: str) -> JobQueue:
    jobs = JobQueue()
    for number, topology in enumerate(topologies):
        jobs.put(job(str(number), topology))
    return jobs


def served(jobs: JobQueue) -> Job:
    job = jobs.next()
    assert job is not None
    return job


def test_jobs_of_one_topology_are_served_in_order() -> None:
    jobs = queue("a", "a", "a")
    assert [served(jobs).batch.id for _ in range(3)] == ["0", "1", "2"]


def test_the_topology_with_fewer_running_jobs_is_served_next() -> None:
    jobs = queue("a", "a", "a", "a", "b", "b")
    first = [served(jobs) for _ in range(4)]
    assert [started_job.batch.topology for started_job in first] == ["a", "b", "a", "b"]
    jobs.put(job("6", "b"))
    for ended_job in first[1::2]:
        jobs.end(ended_job)
    assert served(jobs).batch.topology == "b"


def test_a_job_that_ends_twice_ran_once() -> None:
    jobs = queue("a", "a", "a", "b")
    first, other = served(jobs), served(jobs)
    assert (first.batch.topology, other.batch.topology) == ("a", "b")
    assert [jobs.end(other) for _ in range(2)] == [True, False]
    jobs.put(job("4", "b"))
    assert [served(jobs).batch.topology for _ in range(2)] == ["b", "a"]


def test_a_closed_queue_serves_what_is_in_it() -> None:
    jobs = queue("a")
    jobs.close()
    assert not jobs.put(job("1"))
    assert served(jobs).batch.id == "0"
    assert (jobs.next(), jobs.next()) == (None, None)


def test_a_waiting_slot_is_woken() -> None:
    jobs = queue()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(jobs.next)
        jobs.put(job("0"))
        assert waiting.result(30.0) is not None
        ended = pool.submit(jobs.next)
        jobs.close()
        assert ended.result(30.0) is None


# ---- jobs of tasks that were killed -------------------------------------------------------------


def added(
    jobs: RunningJobs, number: str, life: str, task: str = "spark-0", topology: str = "t"
) -> Job:
    new_job = job(number, topology, task)
    jobs.add(number, new_job, life)
    return new_job


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
    current, late = added(jobs, "2", "second"), added(jobs, "3", "first")
    assert cancelled(late, current, added(jobs, "4", "second")) == [True, False, False]
    last = added(jobs, "5", "third")
    assert cancelled(current, last) == [True, False]


def test_a_job_is_cancelled_by_its_number_while_it_runs_or_before_it_arrives() -> None:
    jobs = RunningJobs()
    ended, running = added(jobs, "1", "first"), added(jobs, "2", "first")
    jobs.remove("1")
    for number in ("1", "2", "3"):
        jobs.cancel(number)
    assert cancelled(ended, running, added(jobs, "3", "first")) == [False, True, True]
    assert cancelled(added(jobs, "4", "second"), ended) == [False, False]


def test_batches_without_a_task_are_not_cancelled() -> None:
    jobs = RunningJobs()
    without_task = [added(jobs, life, life, task="") for life in ("first", "second", "first ")]
    assert not any(cancelled(*without_task))
