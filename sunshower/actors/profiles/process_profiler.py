"""Profiles a worker's process: with py-spy, or, if that is not permitted, by a thread in it."""

from __future__ import annotations

import os
import threading
from collections import Counter
from itertools import dropwhile
from typing import NamedTuple

from sunshower.actors.profiles import py_spy
from sunshower.actors.profiles.stack_sampler import StackSampler
from sunshower.errors import ClusterError
from sunshower.runtime.profiles.stacks import CALLS, LOOP, Stacks, frames_of, merged, stack_of

_THREADS = {"sunshower": LOOP, "MainThread": CALLS}  # Python's names of a worker's threads
PY_SPY, IN_PROCESS = "py-spy", "a thread in the process"


class WorkerProfile(NamedTuple):
    """The answer of a worker that is profiled."""

    is_done: bool
    sampler: str
    refusal: str  # why py-spy did not sample; empty if it did, or was not to
    stacks: Stacks  # empty until it is done


class ProcessProfiler:
    """One profile at a time. Its methods return at once."""

    def __init__(self) -> None:
        self._id = ""
        self._sampler, self._refusal = PY_SPY, ""
        self._stacks: Counter[str] = Counter()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def profile(self, id: str, seconds: float | None, *, in_process: bool) -> WorkerProfile:
        """Begin the profile with this id, or say how far it is. None: end it, and forget it.

        Raises ClusterError while another profile is recorded.
        """
        if seconds is None:
            if id == self._id:
                self._stopped.set()
                self._id, self._stacks = "", Counter()
            return WorkerProfile(True, self._sampler, "", {})
        if id != self._id:
            if self._is_running:
                raise ClusterError(
                    "another profile of this process is being recorded; try again when it has ended"
                )
            self._begin(id, seconds, in_process)
        is_done = not self._is_running
        stacks = dict(self._stacks) if is_done else {}
        return WorkerProfile(is_done, self._sampler, self._refusal, stacks)

    @property
    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _begin(self, id: str, seconds: float, in_process: bool) -> None:
        self._id, self._stacks, self._refusal = id, Counter(), ""
        self._sampler = IN_PROCESS if in_process else PY_SPY
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._record, args=(seconds, self._stopped), name="profiler", daemon=True
        )
        self._thread.start()

    def _record(self, seconds: float, stopped: threading.Event) -> None:
        stacks: Stacks = {}
        if self._sampler == PY_SPY:
            try:
                stacks = py_spy.record(os.getpid(), seconds, _THREADS, stopped)
            except py_spy.SamplerRefused as refused:
                self._sampler, self._refusal = IN_PROCESS, str(refused)
        if self._sampler == IN_PROCESS:
            sampler = StackSampler(_threads())
            sampler.run(seconds, stopped)
            stacks = sampler.stacks()
        if not stopped.is_set():
            self._stacks = merged({_own_part(stack): count} for stack, count in stacks.items())
            del self._stacks[""]


PROFILER = ProcessProfiler()  # of this process: a sampler samples all of it


def _threads() -> dict[int, str]:
    alive = threading.enumerate()
    return {one.ident: _THREADS[one.name] for one in alive if one.ident and one.name in _THREADS}


def _own_part(stack: str) -> str:
    """The stack without what Python and Ray call before the first function of this package. Empty
    if there is none: the main thread waits in Ray's code for calls to the worker."""
    thread, frames = stack.partition(";")[0], frames_of(stack)
    own = list(dropwhile(lambda frame: not (frame.is_ours or frame.is_task), frames))
    return stack_of(thread, own) if own else ""
