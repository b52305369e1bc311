"""Profiles of this process, sampled by a thread in it and by py-spy."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sunshower.actors import profiles
from sunshower.actors.profiles import (
    IN_PROCESS,
    PY_SPY,
    ProcessProfiler,
    StackSampler,
    WorkerProfile,
    shown_file,
)
from sunshower.errors import ClusterError
from sunshower.runtime.profiles import (
    LOOP,
    TimePart,
    frame_of,
    frames_of,
    part_of,
    split_time,
)
from tests.structure.reading import ROOT

HAS_PY_SPY = profiles.find_py_spy() is not None


def count_up(begun: threading.Event, until: threading.Event) -> None:
    begun.set()
    number = 0
    while not until.is_set():
        number += sum(range(100))


def call(function: Callable[..., None], *events: threading.Event) -> None:
    function(*events)


@contextmanager
def working(name: str = "sunshower") -> Iterator[threading.Thread]:
    """A thread in which the task split[0] runs `count_up`."""
    begun, until = threading.Event(), threading.Event()
    thread = threading.Thread(
        target=frame_of("split", 0, call),
        args=(count_up, begun, until),
        name=name,
        daemon=True,
    )
    thread.start()
    try:
        assert begun.wait(60)
        yield thread
    finally:
        until.set()
        thread.join()


def finished(look: Callable[[], WorkerProfile]) -> WorkerProfile:
    end_s = time.monotonic() + 60
    while not (profile := look()).is_done:
        assert time.monotonic() < end_s
        threading.Event().wait(0.02)
    return profile


def test_a_sample_has_the_functions_of_the_thread_with_their_task() -> None:
    with working() as thread:
        assert thread.ident is not None
        sampler = StackSampler({thread.ident: LOOP})
        for _ in range(3):
            sampler.sample()
    stacks = sampler.stacks()
    assert sum(stacks.values()) == 3
    for stack in stacks:
        names = [frame.name for frame in frames_of(stack)]
        assert names[names.index("split[0]") + 1] == "count_up"
    assert split_time(stacks)["split"].keys() == {TimePart.USER}
    files = {frame.file for stack in stacks for frame in frames_of(stack)}
    assert "python/threading.py" in files
    assert __file__ in files


def test_a_thread_that_has_ended_gives_no_sample() -> None:
    with working() as thread:
        ident = thread.ident or 0
    sampler = StackSampler({ident: LOOP})
    sampler.sample()
    assert sampler.stacks() == {}


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sunshower.actors.profiles._STACKS_MAX", 5)
    sampler = StackSampler({threading.get_ident(): LOOP})

    def deeper(depth: int) -> None:
        if depth:
            deeper(depth - 1)
        else:
            sampler.sample()

    for depth in range(20):
        deeper(depth)
    stacks = sampler.stacks()
    assert len(stacks) == 6
    assert sum(stacks.values()) == 20
    assert stacks[f"{LOOP};… other stacks (<none>:0)"] == 15


def test_a_run_ends_when_it_is_stopped_and_restores_the_interpreter() -> None:
    before_s, stopped = sys.getswitchinterval(), threading.Event()
    sampler = StackSampler({threading.get_ident(): LOOP})
    thread = threading.Thread(target=sampler.run, args=(600, stopped))
    thread.start()
    stopped.set()
    thread.join(120)
    assert not thread.is_alive()
    assert sys.getswitchinterval() == before_s


def test_a_profile_in_the_process_finds_the_function_of_the_task() -> None:
    profiler = ProcessProfiler()
    with working():
        profile = finished(lambda: profiler.profile("a", 2.0, in_process=True))
    assert (profile.sampler, profile.refusal) == (IN_PROCESS, "")
    assert split_time(profile.stacks)["split"][TimePart.USER] > 2


@pytest.mark.skipif(not HAS_PY_SPY, reason="py-spy is not installed")
def test_py_spy_finds_the_same_in_the_same_form() -> None:
    profiler = ProcessProfiler()
    with working():
        profile = finished(lambda: profiler.profile("a", 2.0, in_process=False))
    if profile.refusal:
        pytest.skip(profile.refusal)
    assert profile.sampler == PY_SPY
    (stack, *_) = (
        candidate for candidate in profile.stacks if part_of(frames_of(candidate)) is TimePart.USER
    )
    names = [frame.name for frame in frames_of(stack)]
    assert names[:2] == ["split[0]", "count_up"], "what Python calls before it is left out"
    assert split_time(profile.stacks)["split"][TimePart.USER] > 2


def test_where_py_spy_is_missing_the_process_is_sampled_and_the_reason_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    profiler = ProcessProfiler()
    with working():
        profile = finished(lambda: profiler.profile("a", 2.0, in_process=False))
    assert profile.sampler == IN_PROCESS
    assert "py-spy is not installed" in profile.refusal
    assert split_time(profile.stacks)["split"][TimePart.USER] > 2


@pytest.mark.skipif(
    not HAS_PY_SPY or os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="only root can start py-spy as another user, which the kernel refuses",
)
def test_where_ptrace_is_refused_the_process_is_sampled_and_the_reason_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, program = profiles.find_py_spy(), tmp_path / "py-spy"
    program.write_text(f'#!/bin/sh\nexec setpriv --reuid 65534 --clear-groups {real} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    profiler = ProcessProfiler()
    with working():
        profile = finished(lambda: profiler.profile("a", 2.0, in_process=False))
    assert profile.sampler == IN_PROCESS
    assert "ptrace is refused" in profile.refusal
    assert split_time(profile.stacks)["split"][TimePart.USER] > 2


def test_a_second_profile_is_refused_while_one_is_recorded_and_an_ended_one_is_forgotten() -> None:
    profiler = ProcessProfiler()
    with working():
        assert not profiler.profile("a", 600.0, in_process=True).is_done
        assert not profiler.profile("a", 600.0, in_process=True).is_done
        with pytest.raises(ClusterError, match="another profile of this process is being recorded"):
            profiler.profile("b", 600.0, in_process=True)
        profiler.profile("b", None, in_process=True)  # it is not that of `b`
        with pytest.raises(ClusterError):
            profiler.profile("b", 600.0, in_process=True)
        assert profiler.profile("a", None, in_process=True).stacks == {}
        end_s = time.monotonic() + 120
        while any(thread.name == "profiler" for thread in threading.enumerate()):
            assert time.monotonic() < end_s
            threading.Event().wait(0.01)
        assert not profiler.profile("b", 600.0, in_process=True).is_done
        profiler.profile("b", None, in_process=True)


@pytest.mark.skipif(not HAS_PY_SPY, reason="py-spy is not installed")
def test_a_profile_that_is_ended_ends_py_spy() -> None:
    stopped = threading.Event()
    threading.Timer(0.5, stopped.set).start()
    begun_s = time.monotonic()
    assert profiles.record(os.getpid(), 600, {"MainThread": LOOP}, stopped) == {}
    assert time.monotonic() - begun_s < 60


def test_other_lines_of_py_spy_are_left_out() -> None:
    text = (
        "py-spy> Sampling process 100 times a second for 2 seconds. Press Control-C to exit.\n\n"
        "thread (7): sunshower;run (/a/b.py:3);f (/a/b (c).py:9) 12\n"
        f"thread (7): sunshower;Root.f ({ROOT}/sunshower/codec.py:9) 2\n"
        "thread (8): heartbeats;run (/a/b.py:3) 7\n"
        "py-spy> Wrote raw flamegraph data to '/dev/stdout'. Samples: 14 Errors: 0\n"
    )
    assert profiles.parse(text, {"sunshower": LOOP}) == {
        "loop;run (/a/b.py:3);f (/a/b (c).py:9)": 12,
        "loop;Root.f (sunshower/codec.py:9)": 2,
    }


def test_files_are_shown_without_the_folders_of_the_machine() -> None:
    folders = [("/env/site-packages", "site-packages"), ("/env", "python")]
    assert shown_file("/env/site-packages/a/b.py", folders) == "site-packages/a/b.py"
    assert shown_file("/env/json.py", folders) == "python/json.py"
    assert shown_file("/environment/json.py", folders) == "/environment/json.py"
