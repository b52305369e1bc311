"""Stacks as text files: one stack per line, and the JSON that speedscope.app reads."""

from __future__ import annotations

import json
from typing import Any

from sunshower.runtime.profiles.stacks import Stacks, frames_of


def collapsed(stacks: Stacks) -> str:
    """One line for each stack, `thread;frame;frame 12`, as the tools for flame graphs read it."""
    return "".join(f"{stack} {count}\n" for stack, count in sorted(stacks.items()))


def speedscope(stacks: Stacks, title: str) -> str:
    """A JSON text for speedscope, with a profile for each thread."""
    numbers: dict[str, int] = {}
    frames: list[dict[str, Any]] = []
    threads: dict[str, tuple[list[list[int]], list[int]]] = {}
    for stack, count in sorted(stacks.items()):
        samples, weights = threads.setdefault(stack.partition(";")[0], ([], []))
        for frame in frames_of(stack):
            if str(frame) not in numbers:
                numbers[str(frame)] = len(frames)
                frames.append({"name": frame.name, "file": frame.file, "line": frame.line})
        samples.append([numbers[str(frame)] for frame in frames_of(stack)])
        weights.append(count)
    profiles = [
        {
            "type": "sampled",
            "name": thread,
            "unit": "none",
            "startValue": 0,
            "endValue": sum(weights),
            "samples": samples,
            "weights": weights,
        }
        for thread, (samples, weights) in threads.items()
    ]
    return json.dumps(
        {
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "name": title,
            "exporter": "sunshower",
            "shared": {"frames": frames},
            "profiles": profiles,
        }
    )
