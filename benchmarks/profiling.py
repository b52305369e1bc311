"""`python -m benchmarks --profile`: records where the time of our entries goes.

Each entry runs once, while the loops of its workers are sampled as by `sunshower profile`. Entries
that run in this process are sampled here. results/profiles.json stores the shares, and
docs/PERFORMANCE.md shows those of missed targets.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import results_file
from benchmarks.figures import Target
from benchmarks.measure import Comparison, Entry, Log, MissingRequirement
from sunshower.actors.profile_recording import record
from sunshower.actors.profiles import StackSampler
from sunshower.actors.run import RayRun
from sunshower.runtime.profiles import LOOP, Stacks, TimePart, frames_of, part_of

PATH = results_file.PATH.with_name("profiles.json")
_SECONDS = 3.0
_LONGER = {"latency": 10.0}  # for all of its rates
_HERE = ("ledger", "simulation")  # run in this process
_SAMPLES = 50  # a profile has at least this number
_FUNCTIONS = 3  # at most this number is named
_LEAST = 5  # percent of the samples that a named function has


class WorkerProfiles:
    """Samples the workers of a run; `stacks` has those of the last run."""

    def __init__(self) -> None:
        self.seconds = _SECONDS
        self.stacks: Stacks = {}

    def take(self, run: RayRun) -> None:
        self.stacks = record(run.id, run.plan.workers, self.seconds).stacks


def profile(
    comparison: Comparison, workers: WorkerProfiles, run: results_file.Run, log: Log
) -> None:
    """Run each entry of ours, and add its profile to the file. An entry whose figure comes from
    the run of the entry before it gets the same profile."""
    workers.seconds = _LONGER.get(comparison.name, _SECONDS)
    stacks: Stacks = {}
    for entry in comparison.entries:
        if entry.key.system == "sunshower":
            log(f"{comparison.name}: {entry.key.name}")
            try:
                stacks = _stacks(entry, workers) or stacks
            except MissingRequirement as error:
                log(f"{entry.key.name} is skipped: {error}")
                continue
            profile = {"date": run.date, "commit": run.commit, **shares(stacks)}
            if profile["samples"] >= _SAMPLES:
                _add(f"{entry.key.workload}/{entry.key.variant}", profile)


def shares(stacks: Stacks) -> dict[str, Any]:
    """The percentage of the loop's samples that wait; of the other samples, the percentages of each
    part and of the functions with most samples. Library functions count for their caller."""
    parts, functions = Counter[TimePart](), Counter[str]()
    for stack, count in stacks.items():
        if stack.partition(";")[0] != LOOP:
            continue
        frames = frames_of(stack)
        part = part_of(frames)
        parts[part] += count
        innermost = next((frame.name for frame in reversed(frames) if not frame.is_library), "")
        if part is not TimePart.WAITING:
            functions[innermost.replace(".<locals>", "")] += count
    samples, waiting = parts.total(), parts.pop(TimePart.WAITING, 0)
    of = max(samples - waiting, 1)
    return {
        "samples": samples,
        "waiting": round(100 * waiting / max(samples, 1)),
        "parts": {part.value: round(100 * n / of) for part, n in parts.most_common()},
        "functions": {name: round(100 * n / of) for name, n in functions.most_common(_FUNCTIONS)},
    }


def read(path: Path = PATH) -> dict[str, Any]:
    """The profiles, by `workload/variant`."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def sentences(profiles: Mapping[str, Any], targets: Iterable[Target]) -> Iterator[str]:
    """The profiles of these targets as sentences, each profile once."""
    names = dict.fromkeys(_name_of(target.figure, profiles) for target in targets)
    runs: dict[str, list[str]] = {}  # the names of each profile
    for name in names:
        if name in profiles:
            runs.setdefault(json.dumps(profiles[name]), []).append(f"`{name}`")
    for text, same in runs.items():
        entry = json.loads(text)
        parts = ", ".join(f"{part} {share}%" for part, share in entry["parts"].items() if share)
        frequent = [f"`{name}` {n}%" for name, n in entry["functions"].items() if n >= _LEAST]
        functions = f"; most samples are in {', '.join(frequent)}" if frequent else ""
        yield (
            f"[Profile](PROFILING.md#the-table) of {', '.join(same)}, commit {entry['commit']}, "
            f"{entry['date']}: {entry['waiting']}% waiting; "
            f"of the other samples {parts}{functions}."
        )


def _name_of(figure: str, profiles: Iterable[str]) -> str:
    """`workload/variant` of a ratio `workload/variant/peer`, or of `workload/sunshower/variant`. A
    ratio may have the end of a variant: `at-least-once` of `pack-null-at-least-once`."""
    workload, second, third = figure.split("/")
    variant = third if second == "sunshower" else second
    longer = (n for n in profiles if n.startswith(f"{workload}/") and n.endswith(f"-{variant}"))
    name = f"{workload}/{variant}"
    return name if name in profiles else next(longer, name)


def _stacks(entry: Entry, workers: WorkerProfiles) -> Stacks:
    workers.stacks = {}
    with _sampling() as sampler:
        entry.run()
    return sampler.stacks() if entry.key.workload in _HERE else workers.stacks


@contextmanager
def _sampling() -> Iterator[StackSampler]:
    """Samples this thread during the block."""
    sampler, ended = StackSampler({threading.get_ident(): LOOP}), threading.Event()
    thread = threading.Thread(target=sampler.run, args=(3600.0, ended), daemon=True)
    thread.start()
    try:
        yield sampler
    finally:
        ended.set()
        thread.join()


def _add(name: str, profile: Mapping[str, Any]) -> None:
    ordered = dict(sorted({**read(), name: profile}.items()))
    PATH.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
