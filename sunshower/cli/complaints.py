"""An error in one paragraph for whoever typed the command, without the inside of our own code."""

from __future__ import annotations

import re
from pathlib import Path

from sunshower.errors import SunshowerError

_OURS = str(Path(__file__).resolve().parents[1])
_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line \d+, in .*$')


def complaint(error: SunshowerError) -> str:
    """What to print: the message; below it, where user code raised, the frames that are theirs."""
    message, traceback, frames = str(error).partition("\nTraceback (most recent call last):\n")
    text = f"sunshower: {message.strip()}"
    theirs = list(user_frames(frames)) if traceback else []
    return "\n".join([text, *theirs])


def user_frames(traceback: str) -> list[str]:
    """The frames of a formatted traceback that are not ours, each with the lines below it."""
    kept: list[str] = []
    keeping = False
    for line in traceback.splitlines():
        if frame := _FRAME.match(line):
            keeping = not frame["file"].startswith(_OURS)
        elif not line.startswith("    "):
            keeping = False  # the exception itself, which the message has named already
        if keeping:
            kept.append(line)
    return kept
