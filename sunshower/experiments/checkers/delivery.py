"""Delivery checkers: at least, at most, or exactly once; duplicates; order per key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sunshower.arguments import check_all
from sunshower.errors import ExperimentError
from sunshower.experiments.checkers.checker import CheckResult
from sunshower.experiments.evidence.event_history import (
    History,
    message_keys,
    numbers_of,
    task_and_number,
    tasks_of,
)
from sunshower.experiments.evidence.facts import Ending, Facts, Model
from sunshower.experiments.evidence.tuple_evidence import trees
from sunshower.runtime.events.event_log import What
from sunshower.runtime.tracking.ids import I64, incarnations_of


@dataclass(frozen=True)
class AtLeastOnce:
    """Every message of the source was completed.

    Each emitted message is completed at the end, possibly as a dead letter, and no number is left
    out. With `written`, the sink has written each item of the numbered source (default: if it is
    the sink of `experiments.workload`).
    """

    written: bool | None = None
    name: ClassVar[str] = "at-least-once"

    def __post_init__(self) -> None:
        check_all(self, {}, "AtLeastOnce: ", ExperimentError)

    def check(self, history: History, facts: Facts) -> CheckResult:
        lost, left = unaccounted(history, facts)
        suspects: list[int] = lost.tolist()
        doubt = _unfinished(history, facts)
        broken: list[str] = []
        unknown: list[str] = []
        if len(lost):
            reason = f"{len(lost):,} messages were emitted and never completed"
            (unknown if doubt else broken).append(reason)
        if doubt:
            unknown.append(doubt)
        elif facts.tracked:
            broken += _never_emitted(history, facts)
        model = facts.model
        if model is not None and (model.written if self.written is None else self.written):
            if missing := _unwritten(history, facts, model):
                reason = f"{len(missing):,} items were never written, such as {missing[0]}"
                (unknown if doubt else broken).append(reason)
                suspects += _messages_of(missing, model, facts)
        elif not facts.tracked:
            unknown.append("nothing is tracked (ackers=0), and no sink says what it has written")
        count = len(history.accounts.messages)
        return CheckResult(
            f"each of {count:,} messages was completed",
            broken,
            unknown,
            trees(history, dict.fromkeys(suspects)),
            {"lost": len(lost), "left_behind": left},
        )


@dataclass(frozen=True)
class AtMostOnce:
    """No message was emitted twice, no message id of a `next_tuple` spout occurs twice, and the
    sink has written no key twice."""

    name: ClassVar[str] = "at-most-once"

    def check(self, history: History, facts: Facts) -> CheckResult:
        accounts = history.accounts
        twice = accounts.messages[accounts.emits > 1]
        twice = np.union1d(twice, _same_id(history))
        written = Counter(key for key, _ in history.rows(What.WROTE).details)
        repeated = [key for key, times in written.items() if times > 1]
        broken = []
        if len(twice):
            broken.append(f"{len(twice):,} messages were emitted more than once")
        if repeated:
            broken.append(f"{len(repeated):,} keys were written twice, such as {repeated[0]!r}")
        silent = not written and not facts.tracked
        return CheckResult(
            "nothing came twice",
            broken,
            ["no sink says what it has written"] if silent else (),
            trees(history, twice.tolist()),
        )


@dataclass(frozen=True)
class ExactlyOnce:
    """The sink has written what a model says.

    `model`: key → the last written value. Without a model, each item of the numbered source must
    have been written once; after a drain, each item that was emitted.
    """

    model: Mapping[Any, Any] | None = None
    name: ClassVar[str] = "exactly-once"

    def __post_init__(self) -> None:
        check_all(self, {}, "ExactlyOnce: ", ExperimentError)

    def check(self, history: History, facts: Facts) -> CheckResult:
        details = history.rows(What.WROTE).details
        surplus: list[str] = []
        if self.model is not None:
            wrong = _differences(self.model, dict(details))
        elif facts.model is not None:
            times = Counter(key for key, _ in details)
            wanted = _wanted(history, facts, facts.model)
            wrong = _differences(dict.fromkeys(sorted(wanted), 1), times)
            surplus = [f"{key!r} is there {n} times" for key, n in times.items() if n > 1]
        else:
            return CheckResult(
                "", unknown=["there is no model of what should be written: give a model"]
            )
        if doubt := _unfinished(history, facts):
            return CheckResult("", surplus[:1], [doubt, *wrong[:1]], wrong[:20])
        reason = (
            [f"{len(wrong):,} keys are not as in the model, such as: {wrong[0]}"] if wrong else []
        )
        return CheckResult("the sink is equal to the model", reason, (), wrong[:20])


@dataclass(frozen=True)
class Duplicates:
    """Counts what was written, or else completed, more than once. Always HOLDS."""

    name: ClassVar[str] = "duplicates"

    def check(self, history: History, facts: Facts) -> CheckResult:
        count = duplicates(history)
        return CheckResult(f"{count:,} duplicates", figures={"duplicates": count})


@dataclass(frozen=True)
class PerKeyOrder:
    """For each key, the values came in ascending order; earlier values may be repeated.

    Use it only where order is guaranteed: replays break the order of a plain topology.
    """

    name: ClassVar[str] = "per-key-order"

    def check(self, history: History, facts: Facts) -> CheckResult:
        highest: dict[Any, Any] = {}
        seen: set[tuple[Any, Any]] = set()
        wrong: list[str] = []
        wrote = history.rows(What.WROTE)
        for at_s, (key, value) in zip(wrote.at_s.tolist(), wrote.details, strict=True):
            if (key, value) in seen:
                continue
            seen.add((key, value))
            if key in highest and value < highest[key]:
                wrong.append(f"{at_s:.3f} s: {key!r} got {value!r} after {highest[key]!r}")
            else:
                highest[key] = value
        reason = f"{len(wrong):,} values came too late, such as {wrong[0]}" if wrong else ""
        return CheckResult(
            f"the values of {len(highest):,} keys came in order",
            [reason] if wrong else (),
            () if seen else ["no sink says what it has written"],
            wrong[:20],
        )


def duplicates(history: History) -> int:
    """Count the repeated writes of keys; without writes, the repeated completions."""
    keys = [key for key, _ in history.rows(What.WROTE).details]
    if keys:
        return len(keys) - len(set(keys))
    completed = history.rows(What.COMPLETED)
    return len(completed) - len(np.unique(completed.messages))


def excused(history: History, facts: Facts) -> I64:
    """Return the open messages that are not lost: see `unaccounted`."""
    lost, _ = unaccounted(history, facts)
    return np.setdiff1d(history.accounts.open, lost)


def unaccounted(history: History, facts: Facts) -> tuple[I64, int]:
    """Return the messages that were emitted and not completed, and how many others are excused.

    Excused are the open messages of a `next_tuple` spout task that was restarted, of a log spout
    that was drained (the next run reads them from the log), and failed messages of a spout that
    replays by itself.
    """
    lost = _not_elsewhere(history.accounts.open, history, facts)
    if not len(lost):
        return lost, 0
    spared = np.zeros(len(lost), np.bool_)
    emitted = history.rows(What.EMITTED)
    for task in facts.spouts:
        mine = tasks_of(lost) == task
        if not mine.any():
            continue
        if task in facts.self_replaying:
            spared |= mine & np.isin(lost, history.rows(What.FAILED).messages)
        if task not in facts.counted and (facts.drained or task not in facts.logs):
            here = emitted.tasks == task
            lives = incarnations_of(emitted.roots[here]) // len(facts.spouts)
            latest = max(int(lives.max()), _latest_life(history, task))
            still = emitted.messages[here][lives == latest]
            spared |= mine & ~np.isin(lost, still)
    return lost[~spared], int(spared.sum())


def _not_elsewhere(lost: I64, history: History, facts: Facts) -> I64:
    """Leave out messages of logs that another task of the same spout has completed, because their
    partition was moved to it."""
    if not facts.logs:
        return lost
    firsts: dict[str, int] = {}  # component → the task that stands for all of it
    first = {
        task: firsts.setdefault(facts.tasks[task].rpartition("[")[0], task)
        for task in sorted(facts.logs)
    }

    def shared(messages: I64) -> I64:
        tasks = [first.get(task, task) for task in tasks_of(messages).tolist()]
        return message_keys(np.array(tasks, np.int64), numbers_of(messages))

    return lost[~np.isin(shared(lost), shared(history.rows(What.COMPLETED).messages))]


def _same_id(history: History) -> I64:
    """Return the messages with an id that another message of the same task has, too."""
    emitted = history.rows(What.EMITTED)
    found: dict[tuple[int, str], set[int]] = {}
    for message, id in zip(emitted.messages.tolist(), emitted.details, strict=True):
        if id is not None:
            found.setdefault((task_and_number(message)[0], repr(id)), set()).add(message)
    same = [message for messages in found.values() if len(messages) > 1 for message in messages]
    return np.array(same, np.int64)


def _unfinished(history: History, facts: Facts) -> str | None:
    """Return why the history may be incomplete, or None."""
    if history.cut is not None:
        return history.cut
    if facts.ending is not Ending.FINISHED:
        return f"the run did not finish: {facts.error}"
    return None


def _latest_life(history: History, task: int) -> int:
    """Return the last life of a spout task, in any worker."""
    started = history.rows(What.STARTED).entries
    return max((entry.detail[1] for entry in started if task in entry.values), default=0)


def _never_emitted(history: History, facts: Facts) -> list[str]:
    """Return what is wrong with the message numbers of a finished run."""
    messages = history.accounts.messages
    found = []
    for task in sorted(facts.counted):
        numbers = numbers_of(messages[tasks_of(messages) == task])
        if len(numbers) and numbers[-1] != len(numbers) - 1:
            missing = np.setdiff1d(np.arange(int(numbers[-1])), numbers)
            found.append(
                f"{history.name(task)} has left out {len(missing):,} messages, such as {missing[0]}"
            )
    if facts.total is not None and not facts.drained and len(messages) < facts.total:
        found.append(f"of {facts.total:,} messages of the source {len(messages):,} were emitted")
    return found


def _unwritten(history: History, facts: Facts, model: Model) -> list[int]:
    """Return the items that no sink has written and that are not dead letters."""
    written = {key for key, _ in history.rows(What.WROTE).details}
    dead = history.rows(What.DEAD)
    letters = {
        model.number(facts.places[task][0], number)
        for task, number in zip(dead.tasks.tolist(), dead.values.tolist(), strict=True)
    }
    return sorted(_wanted(history, facts, model) - written - letters)


def _wanted(history: History, facts: Facts, model: Model) -> set[int]:
    """The items that have to be written: where the source was drained, those that were emitted."""
    if not facts.drained:
        return set(range(model.total))
    emitted = map(task_and_number, history.accounts.messages.tolist())
    return {model.number(facts.places[task][0], number) for task, number in emitted}


def _messages_of(items: list[int], model: Model, facts: Facts) -> list[int]:
    """Return the message keys of items of the numbered source."""
    spouts = {facts.places[task][0]: task for task in facts.spouts}
    tasks = [spouts[item % model.tasks] for item in items]
    numbers = [item // model.tasks for item in items]
    found: list[int] = message_keys(np.array(tasks), np.array(numbers)).tolist()
    return found


def _differences(wanted: Mapping[Any, Any], found: Mapping[Any, Any]) -> list[str]:
    wrong = [
        f"{key!r} is {found.get(key)!r}, not {value!r}"
        for key, value in wanted.items()
        if found.get(key) != value
    ]
    return wrong + [f"{key!r} is there, and not in the model" for key in found if key not in wanted]
