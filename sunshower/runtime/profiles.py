"""Stacks of a profile as texts, one form for all samplers, and how they divide a worker's time.

The first part is the thread, the others are frames, from the outermost to the innermost. A frame
has the function's qualified name, its file and its first line. Files are `sunshower/…` of this
package, `python/…` of the standard library, `site-packages/…` of installed packages, TASK_FILE of
the frame of a task, `<stage …>` of the generated function of a stage, and else of user code, as
Python has them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import FunctionType
from typing import Any, NamedTuple

LOOP, CALLS = "loop", "calls of Ray"  # the threads of a worker that are sampled
Stacks = Mapping[str, int]  # stack → how many samples had it

_DEPTH_MAX = 200  # frames of a stack that are kept, from the outermost
_DEEPER = "… deeper frames (<none>:0)"
_FRAME = re.compile(r"(?P<name>.*?) \((?P<file>.*):(?P<line>\d+)\)", re.DOTALL)
_SEPARATORS = re.compile(r"[;\r\n]")


# ---- task frames ---------------------------------------------------------------------------------

TASK_FILE = "<task>"  # no path of a source file looks like this
GENERATED = "<stage "  # the beginning of the files of `operators/generated_stages.py`


def frame_of(component: str, index: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with another name: in stacks and tracebacks it is `component[index]`, in
    the file TASK_FILE."""
    assert isinstance(function, FunctionType)
    name = f"{component}[{index}]"
    code = function.__code__.replace(co_name=name, co_qualname=name, co_filename=TASK_FILE)
    return FunctionType(code, function.__globals__)


# ---- stacks --------------------------------------------------------------------------------------


class StackFrame(NamedTuple):
    """One function of a stack."""

    name: str
    file: str
    line: int  # of its `def`

    def __str__(self) -> str:
        return _SEPARATORS.sub(" ", f"{self.name} ({self.file}:{self.line})")

    @property
    def is_ours(self) -> bool:
        """Whether it is of this package."""
        return self.file.startswith(("sunshower/", GENERATED))

    @property
    def is_library(self) -> bool:
        """Whether it is of Python, of an installed package, or of generated code."""
        return self.file.startswith(("python/", "site-packages/", "<"))

    @property
    def is_task(self) -> bool:
        """Whether it is the frame of a task; its name is `component[index]`."""
        return self.file == TASK_FILE


@dataclass(frozen=True)
class Profile:
    """What was recorded of some workers of a topology."""

    stacks: Stacks
    samplers: Mapping[int, str]  # worker → what has sampled it
    refusals: Mapping[int, str] = field(default_factory=dict)  # worker → why py-spy did not
    missing: Mapping[int, str] = field(default_factory=dict)  # worker → why there is nothing of it


def frame_from(text: str) -> StackFrame:
    """The frame that a text of this form stands for; a text without file is a name."""
    if (match := _FRAME.fullmatch(text)) is None:
        return StackFrame(text, "<none>", 0)
    return StackFrame(match["name"], match["file"], int(match["line"]))


def frames_of(stack: str) -> list[StackFrame]:
    """The frames of a stack, the outermost first, without the thread."""
    return [frame_from(text) for text in stack.split(";")[1:]]


def stack_of(thread: str, frames: Iterable[StackFrame]) -> str:
    """The text of a stack; frames beyond the first 200 are left out."""
    texts = [str(frame) for frame in frames]
    if len(texts) > _DEPTH_MAX:
        texts[_DEPTH_MAX:] = [_DEEPER]
    return ";".join([thread, *texts])


def merged(profiles: Iterable[Stacks]) -> Counter[str]:
    """The sum of some stacks."""
    total: Counter[str] = Counter()
    for stacks in profiles:
        total.update(stacks)
    return total


# ---- time split ----------------------------------------------------------------------------------
# Computes the shares of a component's time from the stacks of a profile.
#
# The innermost frame that is not of a library decides: what user code calls in a library is user
# code, and what the runtime calls there is of the runtime. Samples outside of any task's frame are
# of the worker itself: reading and sending packets, choosing the next task, acks, and waiting.

WORKER = ""  # in place of a component: the worker itself


class TimePart(StrEnum):
    """What a sample was taken in."""

    USER = "user code"
    OPERATORS = "operators"  # declared operators, sources, sinks and states
    SERIALISATION = "serialisation"  # codec, packets and sockets
    RECORDS = "records"  # their types checked, their keys, objects made of values
    ROUTING = "routing"  # groupings, batches, channels and credits
    TRACKING = "tracking"  # tuple trees
    SPOUTS = "spouts"
    BOLTS = "bolts"
    REST = "rest of the runtime"
    WAITING = "waiting"


RUNTIME = (
    *(TimePart.RECORDS, TimePart.ROUTING, TimePart.TRACKING),
    *(TimePart.SPOUTS, TimePart.BOLTS, TimePart.REST),
)
# The first beginning of a file's path that fits decides.
_PARTS = (
    ("sunshower/runtime/transport/packet", TimePart.SERIALISATION),
    ("sunshower/runtime/transport/peer_link", TimePart.SERIALISATION),
    ("sunshower/runtime/transport/", TimePart.ROUTING),
    ("sunshower/runtime/tracking/", TimePart.TRACKING),
    ("sunshower/runtime/tasks/spouts/", TimePart.SPOUTS),
    ("sunshower/runtime/tasks/bolts/", TimePart.BOLTS),
    ("sunshower/actors/packets", TimePart.SERIALISATION),
    ("sunshower/codec", TimePart.SERIALISATION),
    ("sunshower/records", TimePart.RECORDS),
    ("sunshower/scalars", TimePart.SERIALISATION),
    ("sunshower/field_types", TimePart.RECORDS),
    ("sunshower/record_reader", TimePart.OPERATORS),
    ("sunshower/topologies/", TimePart.OPERATORS),
    ("sunshower/trident/", TimePart.OPERATORS),
    ("sunshower/state/", TimePart.OPERATORS),
    ("sunshower/kafka/", TimePart.OPERATORS),
    ("sunshower/spark_integration/", TimePart.OPERATORS),
)
# The functions in which a worker waits: for packets, mail and times, and for async calls.
_WAITS = ("PacketSockets._wait", "SystemClock.sleep")


def part_of(frames: Sequence[StackFrame]) -> TimePart:
    """What a stack was sampled in; its outermost frame comes first."""
    innermost = frames[-1].name.rpartition(".")[-1] if frames else ""
    for frame in reversed(frames):
        if frame.is_task:
            return TimePart.REST
        if not frame.is_ours and not frame.is_library:
            return TimePart.USER
        if frame.is_ours:
            return _part_of_ours(frame, innermost)
    return TimePart.REST


def colour_part(frame: StackFrame) -> TimePart | None:
    """The part that a single frame belongs to; None for a library's."""
    if frame.is_task:
        return TimePart.REST
    if frame.is_ours:
        return _part_of_ours(frame, frame.name)
    return None if frame.is_library else TimePart.USER


def component_of(frames: Sequence[StackFrame]) -> str:
    """The component whose task runs in a stack, or WORKER."""
    return next((frame.name.rpartition("[")[0] for frame in frames if frame.is_task), WORKER)


def split_time(stacks: Stacks) -> dict[str, Counter[TimePart]]:
    """Component, or WORKER → samples of each part; of the loop's thread only."""
    parts: dict[str, Counter[TimePart]] = {}
    for stack, count in stacks.items():
        if stack.partition(";")[0] == LOOP:
            frames = frames_of(stack)
            parts.setdefault(component_of(frames), Counter())[part_of(frames)] += count
    return parts


def _part_of_ours(frame: StackFrame, innermost: str) -> TimePart:
    is_async = frame.file.startswith("sunshower/topologies/async_calls")
    if frame.name in _WAITS or (is_async and innermost == "select"):
        return TimePart.WAITING
    if frame.file.startswith(GENERATED):
        return TimePart.OPERATORS
    for start, part in _PARTS:
        if frame.file.startswith(start):
            return part
    return TimePart.REST
