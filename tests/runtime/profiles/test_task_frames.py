"""Tests of frames that are named after tasks."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

from sunshower import Counter, Number, Topology, run_inline
from sunshower.clock import ManualClock
from sunshower.runtime.profiles import TASK_FILE, StackFrame, frame_of


def call(function: Any, *arguments: Any) -> Any:
    return function(*arguments)


def test_the_frame_has_the_name_of_its_task_and_calls_what_it_is_given() -> None:
    seen = []

    def look(value: int) -> int:
        code = sys._getframe(1).f_code
        seen.append(StackFrame(code.co_qualname, code.co_filename, 0))
        return value + 1

    assert frame_of("split", 2, call)(look, 3) == 4
    assert seen == [StackFrame("split[2]", TASK_FILE, 0)]


def test_an_exception_passes_through_the_frame() -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as raised:
        frame_of("split", 0, call)(fail)
    assert [frame.name for frame in traceback.extract_tb(raised.tb)][-2:] == ["split[0]", "fail"]


def test_user_code_of_each_task_runs_below_the_frame_of_its_task() -> None:
    seen: set[tuple[str, ...]] = set()

    def look(_: Number) -> None:
        frame, names = sys._getframe(), []
        while frame is not None:
            if frame.f_code.co_filename == TASK_FILE:
                names.append(frame.f_code.co_name)
            frame = frame.f_back  # type: ignore[assignment]
        seen.add(tuple(names))

    topology = Topology("looks")
    topology.spout("numbers", Counter(4)).shuffle().bolt("look", look, parallelism=2)
    run_inline(topology.graph(), clock=ManualClock())
    assert seen == {("look[0]",), ("look[1]",)}


def sink(look: Any) -> Any:
    return lambda _record: look()


def gives_lists(look: Any) -> Any:
    def give(record: Number) -> list[Number]:
        look()
        return [record]

    return give


def yields(look: Any) -> Any:
    def give(record: Number) -> Iterator[Number]:
        look()
        yield record

    return give


@pytest.mark.parametrize("bolt", [sink, gives_lists, yields])
def test_three_functions_of_ours_are_between_the_scheduler_and_user_code(bolt: Any) -> None:
    seen: set[tuple[str, ...]] = set()

    def look() -> None:
        frame, names = sys._getframe(2), list[str]()
        while frame.f_code.co_name != "_run_ready":
            if "/sunshower/runtime/" in frame.f_code.co_filename:
                names.append(frame.f_code.co_name)
            assert frame.f_back is not None
            frame = frame.f_back
        seen.add(tuple(names))

    topology = Topology("looks")
    fields: Any = () if bolt is sink else Number
    stream = topology.spout("numbers", Counter(4)).shuffle().bolt("bolt", bolt(look), fields=fields)
    if bolt is not sink:
        stream.shuffle().bolt("end", lambda _record: None, fields=())
    run_inline(topology.graph(), clock=ManualClock())
    assert {names[-1] for names in seen} == {"run"}
    assert max(map(len, seen)) <= 3
