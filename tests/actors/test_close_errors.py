"""The errors of tasks that are closed are collected from all workers that can answer."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from sunshower.actors import processes
from sunshower.actors import worker as workers
from sunshower.actors.cluster import RayCluster
from sunshower.actors.names import CALL_S
from sunshower.actors.packets import PacketSockets
from sunshower.errors import ClusterError


@ray.remote
def stop(error: str) -> list[str]:
    if error == "dead":
        raise OSError("the process is gone")
    return [error]


def test_errors_of_other_workers_arrive_although_one_is_dead(
    ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def worker(error: str) -> Any:
        call = SimpleNamespace(remote=lambda: stop.remote(error))
        return SimpleNamespace(stop=call, _actor_id=SimpleNamespace(hex=lambda: error))

    actors = [worker("not closed"), worker("dead"), worker("nor this")]
    monkeypatch.setattr(processes, "living_workers", lambda _: iter(actors))
    errors: list[Any] = processes.close_workers("words-1")
    assert errors == ["not closed", "nor this"]


@pytest.mark.long
def test_a_busy_worker_answers_with_an_error_before_the_call_times_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert workers._ANSWER_S < CALL_S
    busy = workers.WorkerActor.__new__(workers.WorkerActor)
    busy._run, busy._worker, busy.mailbox = "words-1", 3, deque()
    busy._sockets = PacketSockets("127.0.0.1", lambda _: None)
    monkeypatch.setattr(workers, "_ANSWER_S", 0.01)
    with pytest.raises(ClusterError, match="worker 3 of 'words' has not come to an answer"):
        busy._ask(lambda: 1)
