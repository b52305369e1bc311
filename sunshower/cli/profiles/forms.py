"""A profile as the table that `sunshower profile` prints, and as text files for other tools."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from sunshower.cli.formatting import new_table, number_of
from sunshower.runtime.profiles.stacks import Profile, Stacks, frames_of
from sunshower.runtime.profiles.time_split import RUNTIME, WORKER, TimePart, split_time

_COLUMNS = (TimePart.USER, TimePart.OPERATORS, TimePart.SERIALISATION)


def time_table(found: Profile, component: str | None = None) -> RenderableType:
    """Where the time of the sampled workers went; the component that was asked for comes first."""
    split = split_time(found.stacks)
    total: Counter[TimePart] = sum(split.values(), Counter())
    table = new_table(
        "component",
        numbers=("share", *(part.value for part in _COLUMNS), "runtime", "waiting"),
        title=_title(found, total.total()),
    )
    names = sorted(split, key=lambda one: (one != component, one == WORKER, -split[one].total()))
    for name in names:
        _add(table, name or "(no task)", split[name], total.total())
    _add(table, "all", total, total.total())
    return Group(table, _runtime_line(total))


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


def _title(found: Profile, samples: int) -> str:
    samplers = sorted(set(found.samplers.values()))
    workers = number_of(len(found.samplers), "worker")
    return f"{samples:,} samples of {workers}, by {' and '.join(samplers)}"


def _add(table: Table, name: str, parts: Counter[TimePart], of: int) -> None:
    runtime = sum(parts[part] for part in RUNTIME)
    counts = [*(parts[part] for part in _COLUMNS), runtime, parts[TimePart.WAITING]]
    table.add_row(name, *(_share(count, of) for count in (parts.total(), *counts)))


def _runtime_line(total: Counter[TimePart]) -> str:
    parts = ", ".join(f"{part.value} {_share(total[part], total.total())}" for part in RUNTIME)
    return f"The runtime: {parts}."


def _share(count: int, of: int) -> str:
    return f"{count / of:.1%}" if of else ""
