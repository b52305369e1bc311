"""The checkers of a run: delivery, order, charges, recovery, tracking; and what runs several."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from sunshower.arguments import SECONDS, check_all
from sunshower.errors import ExperimentError
from sunshower.experiments.event_history import (
    F64,
    EventRows,
    History,
    is_repeat,
    lookup,
    message_keys,
    numbers_of,
    task_and_number,
    tasks_of,
)
from sunshower.experiments.outcome import (
    UNTRACKED,
    Ending,
    Facts,
    Finding,
    Model,
    Recovery,
    Verdict,
    messages_of,
    trees,
)
from sunshower.failures import Cause, Failure
from sunshower.runtime.events.event_log import NOTHING, What
from sunshower.runtime.tracking.ids import I64, U64, incarnations_of, slots_of


class Checker(Protocol):
    """Checks one guarantee in a history. Frozen."""

    @property
    def name(self) -> str:
        """The name, such as at-least-once."""

    def check(self, history: History, facts: Facts) -> CheckResult:
        """Check the history. An exception becomes UNKNOWN, with the error as reason."""


class _Settings:
    """The base of checkers with settings, which have the types of their annotations."""

    def __post_init__(self) -> None:
        rules = {"within_s": SECONDS} if hasattr(self, "within_s") else {}
        check_all(self, rules, f"{type(self).__name__}: ", ExperimentError)


@dataclass(frozen=True)
class CheckResult:
    """The reasons for BROKEN and for UNKNOWN, and the reason to give if there are none."""

    holds: str
    broken: Sequence[str] = ()
    unknown: Sequence[str] = ()
    evidence: Sequence[str] = ()
    figures: Mapping[str, float] = field(default_factory=dict)

    def finding(self, name: str) -> Finding:
        """Return the finding: BROKEN before UNKNOWN before HOLDS."""
        verdicts = ((Verdict.BROKEN, self.broken), (Verdict.UNKNOWN, self.unknown))
        verdict, reasons = next(
            (pair for pair in verdicts if pair[1]), (Verdict.HOLDS, [self.holds])
        )
        return Finding(name, verdict, tuple(reasons), tuple(self.evidence), self.figures)


def judge(checkers: Iterable[Checker], history: History, facts: Facts) -> tuple[Finding, ...]:
    """Run each checker and return its finding.

    HOLDS becomes UNKNOWN if the history is incomplete, if there was no fault, and if nothing was
    completed after the first fault.
    """
    doubt = _doubt(history, facts)
    findings = (_ask(checker, history, facts) for checker in checkers)
    return tuple(
        replace(finding, verdict=Verdict.UNKNOWN, reasons=(doubt, *finding.reasons))
        if doubt and finding.verdict is Verdict.HOLDS
        else finding
        for finding in findings
    )


def _ask(checker: Checker, history: History, facts: Facts) -> Finding:
    try:
        return checker.check(history, facts).finding(checker.name)
    except Exception as error:
        reason = f"the checker itself has failed: {type(error).__name__}: {error}"
        return Finding(checker.name, Verdict.UNKNOWN, (reason,))


def _doubt(history: History, facts: Facts) -> str | None:
    """Return why this history proves nothing, or None."""
    if history.cut is not None:
        return history.cut
    faults = [fault for fault in history.faults if fault.words not in facts.harmless]
    if not faults:
        return "no fault took effect: the run was over before the first fault, or the plan has none"
    done = history.rows(What.COMPLETED if facts.tracked else What.WROTE)
    if not len(done):
        return "nothing was completed"
    if done.at_s[-1] < faults[0].begun_s:
        return "no fault took effect: everything was done before the first fault"
    return None


# ---- delivery ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AtLeastOnce(_Settings):
    """Every message of the source was completed.

    Each emitted message is completed at the end, possibly as a dead letter, and no number is left
    out. With `written`, the sink has written each item of the numbered source (default: if it is
    the sink of `experiments.workload`).
    """

    written: bool | None = None
    name: ClassVar[str] = "at-least-once"

    def check(self, history: History, facts: Facts) -> CheckResult:
        lost, left = unaccounted(history, facts)
        suspects: list[int] = lost.tolist()
        doubt = _unfinished(history, facts)
        broken, unknown = list[str](), list[str]()
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
class ExactlyOnce(_Settings):
    """The sink has written what a model says.

    `model`: key → the last written value. Without a model, each item of the numbered source must
    have been written once; after a drain, each item that was emitted.
    """

    model: Mapping[Any, Any] | None = None
    name: ClassVar[str] = "exactly-once"

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
            missing = "there is no model of what should be written: give a model"
            return CheckResult("", unknown=[missing])
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
    messages_of_id: dict[tuple[int, str], set[int]] = {}
    for message, id in zip(emitted.messages.tolist(), emitted.details, strict=True):
        if id is not None:
            messages_of_id.setdefault((task_and_number(message)[0], repr(id)), set()).add(message)
    same = [
        message for messages in messages_of_id.values() if len(messages) > 1 for message in messages
    ]
    return np.array(same, np.int64)


def _unfinished(history: History, facts: Facts) -> str | None:
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
    reasons = []
    for task in sorted(facts.counted):
        numbers = numbers_of(messages[tasks_of(messages) == task])
        if len(numbers) and numbers[-1] != len(numbers) - 1:
            missing = np.setdiff1d(np.arange(int(numbers[-1])), numbers)
            reasons.append(
                f"{history.name(task)} has left out {len(missing):,} messages, such as {missing[0]}"
            )
    if facts.total is not None and not facts.drained and len(messages) < facts.total:
        reasons.append(f"of {facts.total:,} messages of the source {len(messages):,} were emitted")
    return reasons


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
    spouts = {facts.places[task][0]: task for task in facts.spouts}
    tasks = [spouts[item % model.tasks] for item in items]
    numbers = [item // model.tasks for item in items]
    messages: list[int] = message_keys(np.array(tasks), np.array(numbers)).tolist()
    return messages


def _differences(wanted: Mapping[Any, Any], written: Mapping[Any, Any]) -> list[str]:
    wrong = [
        f"{key!r} is {written.get(key)!r}, not {value!r}"
        for key, value in wanted.items()
        if written.get(key) != value
    ]
    return wrong + [
        f"{key!r} is there, and not in the model" for key in written if key not in wanted
    ]


# ---- failures ------------------------------------------------------------------------------------

_FULL = 0.9  # of a timeout: clocks drift
_CHARGED = {cause for cause in Cause if Failure(cause).is_charged}
_CHARGE = ("errors ", "expire ")  # the first words of faults that use up attempts


@dataclass(frozen=True)
class NoneTimedOut:
    """No tree failed at its deadline: each failure was detected earlier.

    Only for topologies whose bolts ack everything in time, and for faults that are much shorter
    than the timeout. Trees that `expire` ends are younger than their deadline and do not count.
    """

    name: ClassVar[str] = "none-timed-out"

    def check(self, history: History, facts: Facts) -> CheckResult:
        emitted, failed = history.rows(What.EMITTED), history.rows(What.FAILED)
        timed_out = np.array([cause == Cause.TIMEOUT for cause in failed.details], np.bool_)
        roots = failed.roots[timed_out]
        age_s = failed.at_s[timed_out] - lookup(emitted.roots, emitted.at_s, roots, np.nan)
        limits_s = [facts.timeouts_s.get(task, 0.0) for task in failed.tasks[timed_out].tolist()]
        late = roots[age_s >= _FULL * np.array(limits_s)]
        reason = f"{len(late):,} trees failed at their deadline, and were not detected before"
        return CheckResult(
            "no tree had to wait for its deadline",
            [reason] if len(late) else (),
            () if facts.tracked else [UNTRACKED],
            trees(history, messages_of(history, late)),
        )


@dataclass(frozen=True)
class NothingCharged(_Settings):
    """No message but those in `poison` used up an attempt or became a dead letter, and the
    topology did not give up.

    Only for topologies whose own code raises only outages and fails only `poison`. UNKNOWN if a
    fault of the plan uses up attempts itself: `errors` and `expire`.
    """

    poison: frozenset[int] = frozenset()  # message numbers
    letters_only: bool = False  # for unclassified errors: the history does not record doubt
    name: ClassVar[str] = "nothing-charged"

    def check(self, history: History, facts: Facts) -> CheckResult:
        failed = history.rows(What.FAILED)
        charged = np.array([cause in _CHARGED for cause in failed.details], np.bool_)
        charged &= not self.letters_only
        innocent = ~np.isin(numbers_of(failed.messages), list(self.poison))
        wrong = charged & innocent
        causes = Counter(str(failed.details[at]) for at in np.flatnonzero(wrong).tolist())
        broken = [f"{count:,} failures with the cause {cause!r}" for cause, count in causes.items()]
        dead = history.rows(What.DEAD)
        letters = int(np.count_nonzero(~np.isin(dead.values.view(np.int64), [*self.poison])))
        if letters:
            broken.append(f"{letters:,} dead letters of messages that are not poison")
        if facts.ending is Ending.HALTED:
            broken.append(f"the topology gave up: {facts.error}")
        unknown = [] if facts.tracked else [UNTRACKED]
        if any(fault.words.startswith(_CHARGE) for fault in history.faults):
            unknown += ["faults of this run use up attempts themselves", *broken]
            broken = []
        return CheckResult(
            f"none of {len(failed):,} failures used up an attempt of an innocent message",
            broken,
            unknown,
            trees(history, messages_of(history, failed.roots[wrong])),
            {"charged": int(np.count_nonzero(wrong)), "letters": letters},
        )


# ---- recovery ------------------------------------------------------------------------------------

_MOMENT_S = 0.05  # a shorter fault is instantaneous, such as a kill
_OF_THE_MACHINERY = {Cause.ACTOR_DIED, Cause.BAD_FRAME, Cause.REBALANCED}


@dataclass(frozen=True)
class Liveness(_Settings):
    """Everything is completed within `within_s` after the last fault."""

    within_s: float = 60.0
    name: ClassVar[str] = "liveness"

    def check(self, history: History, facts: Facts) -> CheckResult:
        if not history.faults or any(band.ended_s is None for band in history.faults):
            return CheckResult("", unknown=["the history has no end of the last fault"])
        healed_s = max(band.ended_s or 0.0 for band in history.faults)
        completed = history.rows(What.COMPLETED if facts.tracked else What.WROTE)
        last_s = float(completed.at_s[-1]) if len(completed) else -math.inf
        took_s = max(0.0, last_s - healed_s)
        broken, unknown = [], []
        if facts.ending is Ending.STUCK:
            broken.append(f"it is stuck: {facts.error}")
        elif facts.ending is not Ending.FINISHED:
            unknown.append(f"the run did not finish: {facts.error}")
        elif took_s > self.within_s:
            broken.append(f"all was completed {took_s:.3f} s after the last fault, and not within "
                          f"{self.within_s:g} s")  # fmt: skip
        lost = history.accounts.open.tolist() if broken else []
        holds = f"all was completed {took_s:.3f} s after the last fault"
        if last_s < healed_s:
            holds = "all was completed while the last fault was on"
        return CheckResult(holds, broken, unknown, trees(history, lost), {"settled_s": took_s})


@dataclass(frozen=True)
class Recovers(_Settings):
    """After each fault, the messages it affected are completed within `within_s`: see `recoveries`.

    Excused messages do not count: see `delivery.excused`.
    """

    within_s: float = 30.0
    name: ClassVar[str] = "recovery"

    def check(self, history: History, facts: Facts) -> CheckResult:
        all_recoveries = recoveries(history, excused(history, facts))
        times = [(r.fault, r.seconds) for r in all_recoveries if r.seconds is not None]
        broken = [
            f"after {fault} it took {seconds:.3f} s, and not {self.within_s:g} s"
            for fault, seconds in times
            if seconds > self.within_s
        ]
        unknown = [] if all_recoveries else ["there was no fault to recover from"]
        unknown += [] if facts.tracked else [UNTRACKED]
        reason = [
            f"after {r.fault} it never recovered" for r in all_recoveries if r.seconds is None
        ]
        if history.cut is None and facts.ending in (Ending.FINISHED, Ending.STUCK):
            broken += reason
        else:
            unknown += reason
        worst_s = max((seconds for _, seconds in times), default=0.0)
        which = f"each of {len(all_recoveries):,} faults"
        if len(all_recoveries) == 1:
            which = "the only fault"
        holds = f"after {which}, within {worst_s:.3f} s"
        return CheckResult(holds, broken, unknown, figures={"worst_s": worst_s})


def recoveries(history: History, but: I64 = NOTHING) -> tuple[Recovery, ...]:
    """Return when the messages that each fault affected were complete; faults without an end in the
    history are left out.

    Affected are the messages that were open when the fault ended; after a kill, also those emitted
    before the next process started; and those that the runtime failed before the next fault. The
    messages `but` are left out.
    """
    failed = history.rows(What.FAILED)
    causes = np.array([cause in _OF_THE_MACHINERY for cause in failed.details], np.bool_)
    failed_s, messages = failed.at_s[causes], failed.messages[causes]
    begun_s = np.array([band.begun_s for band in history.faults])
    started_s = history.rows(What.STARTED).at_s
    all_recoveries = []
    for band in history.faults:
        if band.ended_s is None:
            continue
        next_s = _first(begun_s, band.ended_s, math.inf)
        back_s = band.ended_s
        if band.ended_s - band.begun_s < _MOMENT_S:  # a process may be missing until the next start
            back_s = _first(started_s[started_s <= next_s], band.ended_s, band.ended_s)
        lost = messages[(failed_s >= band.begun_s) & (failed_s < next_s)]
        touched = history.accounts.touched(band.ended_s, back_s, lost, but)
        last_s = float(touched.max(initial=band.ended_s))
        whole_s = None if math.isinf(last_s) else last_s
        all_recoveries.append(Recovery(band.words, band.begun_s, band.ended_s, whole_s))
    return tuple(all_recoveries)


def _first(times_s: F64, after_s: float, otherwise: float) -> float:
    later_s = times_s[times_s > after_s]
    return float(later_s.min()) if len(later_s) else otherwise


# ---- tracking ------------------------------------------------------------------------------------

_ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class NoPrematureAck:
    """A root completed only after every edge of its tree was acked, and none was refused.

    Checks all edges of the trees in the sample, at any depth.
    """

    name: ClassVar[str] = "no-premature-ack"

    def check(self, history: History, facts: Facts) -> CheckResult:
        roots, when = completions(history, facts.sample)
        sent, acked, refused = map(history.rows, (What.SENT, What.ACKED, What.REFUSED))
        done = lookup(roots, when, sent.roots, -1)  # by edge: when its tree was complete
        judged = done >= 0
        keys = edge_keys(sent)[judged]
        ack = lookup(edge_keys(acked), acked.order, keys, -1)
        early = (ack < 0) | (ack > done[judged])
        refusal = lookup(roots, when, refused.roots, -1)
        refused_too = (refusal >= 0) & (refused.order < refusal)
        wrong = np.union1d(sent.roots[judged][early], refused.roots[refused_too])
        early_ones = f"{len(wrong):,} of {len(roots):,} trees"
        reason = f"{early_ones} were complete before all their edges were acked"
        unknown = [] if facts.tracked else [UNTRACKED]
        if not len(keys) and len(history.rows(What.COMPLETED)):
            unknown.append("no tree of those completed is in the sample")
        return CheckResult(
            f"{len(roots):,} trees with {len(keys):,} edges were complete, none too early",
            [reason] if len(wrong) else (),
            unknown,
            trees(history, messages_of(history, wrong)),
            {"trees": len(roots), "edges": len(keys)},
        )


@dataclass(frozen=True)
class EachEdgeOnce:
    """Each edge is delivered once, to its target task, and acked once, after that."""

    name: ClassVar[str] = "each-edge-once"

    def check(self, history: History, facts: Facts) -> CheckResult:
        sent, delivered, acked = map(history.rows, (What.SENT, What.DELIVERED, What.ACKED))
        arrivals = edge_keys(delivered)
        handed = lookup(arrivals, delivered.order, edge_keys(acked), -1)
        wrong = {
            "reached a bolt twice": delivered.roots[is_repeat(arrivals)],
            "were acked twice": acked.roots[is_repeat(edge_keys(acked))],
            "were acked before they reached the bolt": acked.roots[
                (handed < 0) | (handed > acked.order)
            ],
            "reached a bolt that they were not sent to": delivered.roots[_astray(sent, delivered)],
        }
        roots = np.unique(np.concatenate(list(wrong.values())))
        return CheckResult(
            f"{len(arrivals):,} edges reached their bolts once",
            [f"{len(roots):,} edges {what}" for what, roots in wrong.items() if len(roots)],
            () if len(arrivals) else ["no edge has reached a bolt"],
            trees(history, messages_of(history, roots)),
        )


@dataclass(frozen=True)
class BoundedPending(_Settings):
    """At most `limit` trees are open for each spout task; None: its `spout_pending`."""

    limit: int | None = None
    name: ClassVar[str] = "bounded-pending"

    def check(self, history: History, facts: Facts) -> CheckResult:
        limit = facts.pending_max if self.limit is None else self.limit
        peaks = pending_peaks(history)
        if not peaks:
            return CheckResult("", unknown=["nothing was emitted"])
        worst = max(peaks, key=peaks.__getitem__)
        spout = facts.spouts[worst % len(facts.spouts)]
        reason = f"{history.name(spout)} had {peaks[worst]:,} trees open, and {limit:,} are allowed"
        return CheckResult(
            f"at most {peaks[worst]:,} trees were open at once, and {limit:,} are allowed",
            [reason] if peaks[worst] > limit else (),
            figures={"pending_max": peaks[worst]},
        )


def completions(history: History, sample: int) -> tuple[U64, I64]:
    """The roots in the sample that were complete, ascending, and when (as `order`), first."""
    completed = history.rows(What.COMPLETED)
    sampled = slots_of(completed.roots) % sample == 0
    roots, at = np.unique(completed.roots[sampled], return_index=True)
    return roots, completed.order[sampled][at]


def edge_keys(rows: EventRows) -> U64:
    """Return one number for each pair of root and edge; trees may share an edge."""
    keys: U64 = (rows.roots * _ODD) ^ rows.values.view(np.uint64)
    return keys


def pending_peaks(history: History) -> dict[int, int]:
    """Return incarnation → the maximum of its open trees."""
    kinds = [history.rows(what) for what in (What.EMITTED, What.COMPLETED, What.FAILED)]
    incarnations = incarnations_of(np.concatenate([rows.roots for rows in kinds]))
    order = np.concatenate([rows.order for rows in kinds])
    change = np.repeat([1, -1, -1], [len(rows) for rows in kinds])
    peaks: dict[int, int] = {}
    by_time = np.argsort(order, kind="stable")
    incarnations, change = incarnations[by_time], change[by_time]
    for incarnation in np.unique(incarnations).tolist():
        peaks[incarnation] = int(np.cumsum(change[incarnations == incarnation]).max())
    return peaks


def _astray(sent: EventRows, delivered: EventRows) -> NDArray[np.bool_]:
    """Return which were delivered to another task than their target."""
    meant = lookup(edge_keys(sent), sent.targets, edge_keys(delivered), -1)
    astray: NDArray[np.bool_] = (meant >= 0) & (meant != delivered.tasks)
    return astray
