"""Calls with requests: those that wait together are sent together, and each ends at its timeout."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from sunshower.actors.run import RayRun, RequestCalls
from sunshower.actors.worker import WorkerActor
from sunshower.errors import ClusterError, TopologyFailed
from sunshower.runtime.queries import Replies
from sunshower.topologies.requests import Reply, Request, RequestProgress


def request(number: int, left_s: float = 60.0) -> Request:
    return Request(str(number), number, left_s)


class Worker:
    """Answers a call when it is told to."""

    def __init__(self) -> None:
        self.calls = SimpleQueue[tuple[list[int], SimpleQueue[Any]]]()

    def __call__(self, requests: list[Request]) -> list[Reply | RequestProgress]:
        answers = SimpleQueue[Any]()
        self.calls.put(([request.value for request in requests], answers))
        answer = answers.get(timeout=60)
        if isinstance(answer, Exception):
            raise answer
        return [Reply([request.value]) for request in requests]


def test_requests_that_wait_while_four_calls_are_open_are_sent_in_one_call() -> None:
    worker = Worker()
    calls = RequestCalls(worker)
    with ThreadPoolExecutor(40) as pool:
        asked = [pool.submit(calls.ask, request(number)) for number in range(4)]
        open_calls = [worker.calls.get(timeout=60) for _ in range(4)]
        asked += [pool.submit(calls.ask, request(number)) for number in range(4, 40)]
        while len(calls._waiting) < 36:
            assert worker.calls.empty()
        open_calls[0][1].put(True)
        values, answers = worker.calls.get(timeout=60)
        for _, other in [*open_calls[1:], (values, answers)]:
            other.put(True)
        replies = [future.result(60) for future in asked]
    assert sorted(value for numbers, _ in open_calls for value in numbers) == [0, 1, 2, 3]
    assert sorted(values) == [*range(4, 40)]
    assert [reply.rows for reply in replies if isinstance(reply, Reply)] == [[n] for n in range(40)]


@pytest.mark.parametrize("error", [ClusterError("away"), TopologyFailed("ended")])
def test_the_error_of_a_call_is_that_of_each_of_its_requests(error: Exception) -> None:
    worker = Worker()
    calls = RequestCalls(worker)
    with ThreadPoolExecutor(10) as pool:
        asked = [pool.submit(calls.ask, request(number)) for number in range(10)]
        while sum(future.done() for future in asked) < 10:
            worker.calls.get(timeout=60)[1].put(error)
            while worker.calls.empty() and not all(future.done() for future in asked):
                pass
    assert {type(future.exception()) for future in asked} == {type(error)}


def test_a_request_that_waits_for_calls_of_others_ends_at_its_timeout_and_is_not_sent() -> None:
    worker = Worker()
    calls = RequestCalls(worker)
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(calls.ask, request(number)) for number in range(4)]
        open_calls = [worker.calls.get(timeout=60)[1] for _ in range(4)]
        with pytest.raises(ClusterError, match="other requests"):
            calls.ask(request(9, left_s=0.01))
        for answers in open_calls:
            answers.put(True)
        assert [future.result(60) for future in asked]
        last = pool.submit(calls.ask, request(5))
        values, answers = worker.calls.get(timeout=60)
        answers.put(True)
        assert (values, last.result(60)) == ([5], Reply([5]))


def test_the_caller_that_waits_longest_makes_the_next_call() -> None:
    worker = Worker()
    calls = RequestCalls(worker)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(calls.ask, request(number)) for number in range(4)]
        open_calls = [worker.calls.get(timeout=60)[1] for _ in range(4)]
        for number, left_s in [(4, 20.0), (5, 50.0), (6, 30.0)]:
            asked.append(pool.submit(calls.ask, request(number, left_s)))
            while len(calls._waiting) < number - 3:
                pass
        open_calls[0].put(True)
        values, answers = worker.calls.get(timeout=60)
        assert values == [5, 4, 6]
        for other in [*open_calls[1:], answers]:
            other.put(True)
        assert len([future.result(60) for future in asked]) == 7


@pytest.mark.parametrize("own_s", [0.2, 8.0])
def test_a_request_with_little_time_shortens_no_call_of_another_thread(
    monkeypatch: pytest.MonkeyPatch, own_s: float
) -> None:
    run, within = object.__new__(RayRun), list[tuple[float, float]]()

    def called(_: Any, name: str, requests: Any, hold_s: float, *, within_s: float) -> None:
        within.append((hold_s, within_s))

    monkeypatch.setattr(run, "_call", called)
    actor: Any = SimpleNamespace(ask=SimpleNamespace(options=lambda **_: None))
    run._ask_all(actor, "asks", [request(1, own_s), request(2, 0.01)])
    ((hold_s, within_s),) = within
    assert (hold_s, within_s) == (0.01, own_s + 0.1)


class Answering(WorkerActor):
    """A worker without Ray: a test replies to its requests."""

    def __init__(self) -> None:
        self._replies, self._ends = Replies(), {}
        self.asked = SimpleQueue[Any]()

    def put(self, fact: Any) -> None:
        self.asked.put(fact)


def read_replies(answer: Any) -> list[Any]:
    """What a client reads."""
    return list(pickle.loads(pickle.dumps(answer)))


def test_a_call_returns_once_all_of_its_requests_have_ended() -> None:
    worker = Answering()
    worker.reply("0", Reply(["early"]), 60.0)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(worker.ask, "asks", [request(0), request(1), request(2)], 60.0)
        worker.asked.get(timeout=60)
        worker.reply("1", RequestProgress.RUNS, 60.0)
        worker.reply("2", Reply(["second"]), 60.0)
        worker.reply("1", Reply(["first"]), 60.0)
        assert read_replies(call.result(60)) == [
            Reply(["early"]),
            Reply(["first"]),
            Reply(["second"]),
        ]
    assert read_replies(worker.ask("asks", [request(1)], 0.001)) == [RequestProgress.ABSENT]


def test_a_call_returns_in_time_with_how_far_its_requests_are() -> None:
    worker = Answering()
    worker.reply("1", RequestProgress.RUNS, 60.0)
    assert read_replies(worker.ask("asks", [request(0), request(1)], 0.001)) == [
        RequestProgress.ABSENT,
        RequestProgress.RUNS,
    ]
