"""Loads the new code of an upgrade; separate because it is a program, in a process of its own.

    python -m sunshower.actors.plan_check < the two pickled plans, each behind its length

The master keeps no user code: a process can have one version of a module at a time, and a master
lives through several. Of the running code, this process has the outline only.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from dataclasses import replace
from typing import BinaryIO

from ray import cloudpickle

from sunshower.actors.shipping import outline, pickled
from sunshower.actors.starting import first_line
from sunshower.errors import LifecycleError, SunshowerError
from sunshower.runtime.control.plan_changes import continued
from sunshower.runtime.plan import Plan

_LENGTH = struct.Struct("!Q")
_CONTINUED, _REFUSED = b"+", b"-"


def check_plan(before: bytes, given: bytes, within_s: float) -> bytes:
    """The pickled plan of `given` code, whose spouts continue at the positions of those `before`.

    Raises LifecycleError if the code does not load here within that time, or does not continue.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", __name__]
    content = b"".join(_LENGTH.pack(len(plan)) + plan for plan in (before, given))
    try:
        done = subprocess.run(  # noqa: S603 (this interpreter)
            command,
            input=content,
            stdout=subprocess.PIPE,
            env=environment,
            timeout=within_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        why = f"it takes longer than {within_s:g} s"
    else:
        outcome, answer = done.stdout[:1], done.stdout[1:]
        if outcome == _CONTINUED:
            return answer
        if outcome == _REFUSED:
            raise LifecycleError(answer.decode())
        why = f"the process that loads it ends with status {done.returncode}"
    raise _unloadable(why)


def _unloadable(why: str) -> LifecycleError:
    return LifecycleError(
        f"the new code does not load on the cluster: {why}. Nothing has been changed"
    )


def _check(before: bytes, given: bytes) -> bytes:
    former = outline(before)
    try:
        plan: Plan = cloudpickle.loads(given)
    except Exception as error:
        raise _unloadable(first_line(error)) from error
    graph = replace(plan.graph, components=continued(former, plan))
    return pickled(replace(plan, graph=graph))


def _read(file: BinaryIO) -> bytes:
    (size,) = _LENGTH.unpack(file.read(_LENGTH.size))
    return file.read(size)


def _main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what user code prints is no answer
    plans = [_read(sys.stdin.buffer) for _ in range(2)]
    try:
        answer = _CONTINUED + _check(*plans)
    except SunshowerError as error:
        answer = _REFUSED + str(error).encode()
    with answers:
        answers.write(answer)


if __name__ == "__main__":
    _main()
