"""Computes the shares of a component's time from the stacks of a profile.

The innermost frame that is not of a library decides: what user code calls in a library is user
code, and what the runtime calls there is of the runtime. Samples outside of any task's frame are
of the worker itself: reading and sending packets, choosing the next task, acks, and waiting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from sunshower.runtime.profiles.stacks import LOOP, StackFrame, Stacks, frames_of

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
    ("sunshower/runtime/transport/frames", TimePart.SERIALISATION),
    ("sunshower/runtime/transport/peer_link", TimePart.SERIALISATION),
    ("sunshower/runtime/transport/", TimePart.ROUTING),
    ("sunshower/runtime/tracking/", TimePart.TRACKING),
    ("sunshower/runtime/tasks/spouts/", TimePart.SPOUTS),
    ("sunshower/runtime/tasks/bolts/", TimePart.BOLTS),
    ("sunshower/actors/packets/", TimePart.SERIALISATION),
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
    return next((one.name.rpartition("[")[0] for one in frames if one.is_task), WORKER)


def split_time(stacks: Stacks) -> dict[str, Counter[TimePart]]:
    """Component, or WORKER → samples of each part; of the loop's thread only."""
    found: dict[str, Counter[TimePart]] = {}
    for stack, count in stacks.items():
        if stack.partition(";")[0] == LOOP:
            frames = frames_of(stack)
            found.setdefault(component_of(frames), Counter())[part_of(frames)] += count
    return found


def _part_of_ours(frame: StackFrame, innermost: str) -> TimePart:
    is_async = frame.file.startswith("sunshower/topologies/async_calls")
    if frame.name in _WAITS or (is_async and innermost == "select"):
        return TimePart.WAITING
    for start, part in _PARTS:
        if frame.file.startswith(start):
            return part
    return TimePart.REST
