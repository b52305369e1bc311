"""Tests of stacks as text, and of the part of the work to which a stack belongs."""

from __future__ import annotations

from collections import Counter

import pytest

from sunshower.runtime.profiles import (
    _PARTS,
    _WAITS,
    CALLS,
    LOOP,
    TASK_FILE,
    WORKER,
    StackFrame,
    TimePart,
    component_of,
    frame_from,
    frames_of,
    merged,
    part_of,
    split_time,
    stack_of,
)
from tests.structure.reading import ROOT

LIVE = StackFrame("WorkerActor._loop", "sunshower/actors/worker.py", 310)
TASK = StackFrame("split[1]", TASK_FILE, 10)
BOLT = StackFrame("BoltTask.process", "sunshower/runtime/tasks/bolts/bolt_task.py", 90)
USER = StackFrame("Split.process", "/app/words.py", 7)
JSON = StackFrame("loads", "python/json/__init__.py", 299)
PACK = StackFrame("packb", "site-packages/msgpack/__init__.py", 30)
GENERATED = StackFrame("__init__", "<string>", 1)
ROUTE = StackFrame("Fields.targets", "sunshower/runtime/transport/routing.py", 50)
ENCODE = StackFrame("encode", "sunshower/codec.py", 20)
LEDGER = StackFrame("Ledger.ack", "sunshower/runtime/tracking/ledger.py", 20)
WAIT = StackFrame("PacketSockets._wait", "sunshower/actors/packets.py", 210)
SELECT = StackFrame("EpollSelector.select", "python/selectors.py", 451)
ASYNC_SELECT = StackFrame("_ClockSelector.select", "sunshower/topologies/async_calls.py", 152)
SLEEP = StackFrame("SystemClock.sleep", "sunshower/clock.py", 30)
MAP = StackFrame("map_rows", "sunshower/topologies/operators/stages.py", 30)


@pytest.mark.parametrize(
    ("inner", "part"),
    [
        ([BOLT, USER], TimePart.USER),
        ([BOLT, USER, JSON], TimePart.USER),
        ([BOLT, USER, GENERATED], TimePart.USER),
        ([BOLT, MAP, USER], TimePart.USER),
        ([BOLT, MAP], TimePart.OPERATORS),
        ([BOLT, USER, ROUTE], TimePart.ROUTING),
        ([BOLT, ENCODE, PACK], TimePart.SERIALISATION),
        ([BOLT, LEDGER], TimePart.TRACKING),
        ([BOLT], TimePart.BOLTS),
        ([MAP, ASYNC_SELECT, SELECT], TimePart.WAITING),
        ([MAP, ASYNC_SELECT, SLEEP], TimePart.WAITING),
        ([], TimePart.REST),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "-".join(f.name for f in value),
)
def test_the_innermost_frame_that_is_not_a_library_decides(
    inner: list[StackFrame], part: TimePart
) -> None:
    assert part_of([LIVE, TASK, *inner]) is part


def test_the_wait_of_a_worker_is_not_work() -> None:
    assert part_of([LIVE, WAIT, SELECT]) is TimePart.WAITING
    assert part_of([LIVE]) is TimePart.REST
    assert part_of([]) is TimePart.REST


def test_the_files_and_functions_that_decide_exist() -> None:
    for start, _ in _PARTS:
        assert list(ROOT.glob(f"{start}*")), start
    for wait, file in zip(_WAITS, (WAIT.file, SLEEP.file), strict=True):
        owner, name = wait.split(".")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert f"class {owner}" in text
        assert f"def {name}(" in text


def test_time_is_split_by_component_and_only_of_the_loop() -> None:
    stacks = {
        stack_of(LOOP, [LIVE, TASK, BOLT, USER]): 6,
        stack_of(LOOP, [LIVE, TASK._replace(name="split[0]"), BOLT]): 1,
        stack_of(LOOP, [LIVE, WAIT, SELECT]): 3,
        stack_of(CALLS, [USER]): 100,
    }
    assert split_time(stacks) == {
        "split": Counter({TimePart.USER: 6, TimePart.BOLTS: 1}),
        WORKER: Counter({TimePart.WAITING: 3}),
    }


def test_a_stack_is_the_same_after_conversion_to_text() -> None:
    frames = [LIVE, TASK, USER, GENERATED]
    assert frames_of(stack_of(LOOP, frames)) == frames
    assert component_of(frames) == "split"
    assert frame_from("no file") == StackFrame("no file", "<none>", 0)
    odd = StackFrame("f;g\nh", "/a (b)/c.py", 3)
    assert frame_from(str(odd)) == odd._replace(name="f g h")


def test_deep_stacks_are_cut_inside_and_keep_their_task() -> None:
    frames = frames_of(stack_of(LOOP, [LIVE, TASK, *[USER] * 1000]))
    assert len(frames) == 201
    assert component_of(frames) == "split"
    assert part_of(frames) is TimePart.USER


def test_stacks_of_several_workers_are_added() -> None:
    assert merged([{"a": 1, "b": 2}, {"b": 3}]) == {"a": 1, "b": 5}
