"""Reads the arguments of other processes, which every user of a machine can see."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def arguments_of_others() -> bytes:
    """Return the arguments of all processes except this one."""
    arguments = b""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):  # the process has ended
                arguments += (folder / "cmdline").read_bytes()
    return arguments
