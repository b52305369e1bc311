"""Stacks of a profile as texts, one form for all samplers: `loop;caller (file:line);callee (…)`.

The first part is the thread, the others are frames, from the outermost to the innermost. A frame
has the function's qualified name, its file and its first line. Files are `sunshower/…` of this
package, `python/…` of the standard library, `site-packages/…` of installed packages, TASK_FILE of
the frame of a task, and else of user code, as Python has them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sunshower.runtime.profiles.task_frames import TASK_FILE

LOOP, CALLS = "loop", "calls of Ray"  # the threads of a worker that are sampled
Stacks = Mapping[str, int]  # stack → how many samples had it

_DEPTH_MAX = 200  # frames of a stack that are kept, from the outermost
_DEEPER = "… deeper frames (<none>:0)"
_FRAME = re.compile(r"(?P<name>.*?) \((?P<file>.*):(?P<line>\d+)\)", re.DOTALL)
_SEPARATORS = re.compile(r"[;\r\n]")


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
        return self.file.startswith("sunshower/")

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
    if (found := _FRAME.fullmatch(text)) is None:
        return StackFrame(text, "<none>", 0)
    return StackFrame(found["name"], found["file"], int(found["line"]))


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
