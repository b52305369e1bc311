"""Runs a command of Sunshower on the head of a cluster, as a Ray job.

A job is submitted over HTTP, through the address of Ray's dashboard. So the client needs no node
of the cluster, and no port but that one.
"""

from __future__ import annotations

import logging
import shlex
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ray.job_submission import JobStatus, JobSubmissionClient

from sunshower.actors.starting import first_line
from sunshower.errors import ClusterError

T = TypeVar("T")
_LOOK_EVERY_S = 0.3
_REPEAT_S = 30.0  # how long requests about a job are repeated
_STARTED = "Running entrypoint for job "  # the line of Ray before the output of the command


def is_dashboard(address: str) -> bool:
    """Whether it is the address of Ray's dashboard, `http://HOST:8265`."""
    return address.startswith(("http://", "https://"))


def run_as_job(
    address: str,
    arguments: Sequence[str],
    print_line: Callable[[str], None],
    working_dir: Path | None = None,
) -> int:
    """Run `sunshower ARGUMENTS` on the cluster whose dashboard is at `address`; return its status.

    The files of `working_dir` are sent there: they are in the working directory of the command, and
    of the workers of a topology that it submits. `print_line` receives its output. When the user
    interrupts, the job is stopped. When the connection is lost, it is not: requests are repeated
    for 30 s. Raises ClusterError if the job cannot be run, or if its end is not known.
    """
    logging.getLogger("ray").setLevel(logging.ERROR)  # as a driver's: it logs each upload
    try:
        client = JobSubmissionClient(address)
        job = client.submit_job(
            entrypoint=shlex.join(["sunshower", *arguments]),
            runtime_env={"working_dir": str(working_dir)} if working_dir else {},
        )
    except Exception as error:  # of requests, of Ray and, by its server, RuntimeError
        raise ClusterError(
            f"the cluster at {address} has not run the command: {first_line(error)}. Its nodes "
            "need the packages of ray[default]; if it requires a token, set RAY_AUTH_MODE=token "
            "and RAY_AUTH_TOKEN_PATH"
        ) from error

    def ask(request: Callable[[str], T]) -> T:
        try:
            return repeat(partial(request, job), time.monotonic, time.sleep)
        except Exception as error:
            raise ClusterError(
                f"the connection to the cluster at {address} is lost: {first_line(error)}. The "
                f"job {job} may still be running: ray job status {job} --address {address}"
            ) from error

    try:
        status = _follow(client, ask, print_line)
        info = ask(client.get_job_info)
    except KeyboardInterrupt:
        ask(client.stop_job)
        raise
    if status == JobStatus.SUCCEEDED:
        return 0
    if info.driver_exit_code is not None:
        return int(info.driver_exit_code)
    raise ClusterError(f"the cluster at {address} has not completed the command: {info.message}")


def repeat(request: Callable[[], T], now: Callable[[], float], sleep: Callable[[float], None]) -> T:
    """Send a request until it succeeds; returns its result. After 30 s raises its last error."""
    begun_s = now()
    while True:
        try:
            return request()
        except Exception:
            if now() - begun_s > _REPEAT_S:
                raise
        sleep(_LOOK_EVERY_S)


def _follow(
    client: Any, ask: Callable[[Callable[[str], Any]], Any], print_line: Callable[[str], None]
) -> JobStatus:
    """Print the output of the command until the job ends."""
    printed = 0
    while True:
        status: JobStatus = ask(client.get_job_status)
        _, _, output = ask(client.get_job_logs).partition(_STARTED)
        lines = output.splitlines()[1:]
        whole = len(lines) if status.is_terminal() or output.endswith("\n") else len(lines) - 1
        for line in lines[printed:whole]:
            print_line(line)
        if status.is_terminal():
            return status
        printed = max(printed, whole)
        time.sleep(_LOOK_EVERY_S)
