"""Patterns in the records of a key, which come in the order of their event times.

    PatternStep("failed", lambda login: not login.ok, times=3)   a step, and which records are of it
    Pattern(steps, within, skip)                                 what a match is
    Candidates(pattern)                                          matches of a key that have begun

Each record begins at most one match. In a match a record goes to the first step that it fits: the
one that repeats, before those that follow. A match that has begun later waits for those before it,
so the matches of a key are found in the order in which they begin, as by SQL's MATCH_RECOGNIZE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from math import inf
from typing import (
    Any,
    Generic,
    Literal,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    get_args,
    overload,
)
from zlib import crc32

from sunshower.arguments import FLAG, Values, check_names
from sunshower.errors import StateMismatch, TopologyError
from sunshower.records import Schema
from sunshower.topologies.async_functions import limits_of
from sunshower.topologies.operators.keyed.key_states import KeyState
from sunshower.topologies.operators.windows.event_times import Time, is_before, length_of, plus
from sunshower.topologies.signatures import is_generator, name_of

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)
Match: TypeAlias = Mapping[str, Sequence[R]]  # name of a step → its records, in their order
Skip: TypeAlias = Literal["past_last", "to_last", "to_next"]
_TIMES = Values(int, "a whole number", least=1)
_WITHIN = Values(float, "a number", least=0, above=True)


class Repetition(TypedDict, total=False):
    """How many records a step has, and where.

    - `times`: exactly so many, 1
    - `at_least`: so many or more
    - `optional`: or none
    - `strict`: each directly follows the record before it in the match; otherwise records between
      them are skipped that fit no step
    - `absent`: none, until a record of the next step comes; of the last step, until the match is
      `within` old
    """

    times: int
    at_least: int
    optional: bool
    strict: bool
    absent: bool


class PatternStep(Generic[R_contra]):
    """A step of a pattern: how many records, of those for which a function is true. The function
    may look at the match so far, in which its own step has the records before."""

    @overload
    def __init__(
        self, name: str, fits: Callable[[R_contra], bool], **how: Unpack[Repetition]
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        fits: Callable[[R_contra, Match[R_contra]], bool],
        **how: Unpack[Repetition],
    ) -> None: ...
    def __init__(self, name: str, fits: Callable[..., bool], **how: Unpack[Repetition]) -> None:
        """Raises TopologyError for what cannot be a step."""
        where = f"step {name!r}"
        if not isinstance(name, str) or not name.isidentifier():
            raise TopologyError(f"{where}: its name is a text such as 'failed'")
        check_names(how, Repetition.__annotations__, where, TopologyError)
        for flag in ("optional", "strict", "absent"):
            FLAG.check(f"{where}: {flag}", how.get(flag, False), TopologyError)
        for number in how.keys() & {"times", "at_least"}:
            _TIMES.check(f"{where}: {number}", how.get(number), TopologyError)
        if {"times", "at_least"} <= how.keys():
            raise TopologyError(f"{where}: give times= or at_least=, not both")
        self.is_absent = how.get("absent", False)
        if self.is_absent and how.keys() & {"times", "at_least", "optional"}:
            raise TopologyError(
                f"{where}: absent=True is for a step without records: leave out times=, at_least= "
                "and optional="
            )
        self.name, self.fits, self.reads_match = name, fits, _reads_match(fits, where)
        self.is_strict, self.is_optional = how.get("strict", False), how.get("optional", False)
        self.least = how.get("at_least", how.get("times", 1))
        self.most: float = inf if "at_least" in how else self.least

    @property
    def shape(self) -> tuple[Any, ...]:
        """What must be equal where matches that have begun continue."""
        counts = self.least, self.most != inf
        return self.name, *counts, self.is_optional, self.is_strict, self.is_absent


def _reads_match(fits: Any, where: str) -> bool:
    """Whether a condition looks at the match so far. Raises TopologyError."""
    if callable(fits) and not limits_of(fits) and not is_generator(fits):
        for count in (1, 2):
            try:
                signature(fits).bind(*[object()] * count)
            except TypeError:
                continue
            except ValueError:  # a builtin without a readable signature
                return False
            return count > 1
    raise TopologyError(
        f"{where}: {name_of(fits)} is no plain function of a record, or of a record and the match "
        "so far, such as one with the parameters bid and match"
    )


# ---- pattern -------------------------------------------------------------------------------------


class Pattern:
    """Steps that follow one another; the last record of a match is less than `within` after its
    first. `skip`: where the next match may begin: behind the last record of this one ("past_last"),
    at its last record, or at the record behind its first."""

    def __init__(
        self,
        steps: Sequence[PatternStep[Any]],
        within: float,
        skip: Skip = "past_last",
        where: str = "",
    ) -> None:
        """Raises TopologyError for steps that never make a match."""
        _WITHIN.check(f"{where}: within", within, TopologyError)
        if skip not in get_args(Skip):
            raise TopologyError(f"{where}: skip is {skip!r}; it is one of {get_args(Skip)}")
        for step in steps:
            if not isinstance(step, PatternStep):
                raise TopologyError(
                    f"{where}: {step!r:.100} is no step; give PatternStep('name', function)"
                )
        names = [step.name for step in steps]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise TopologyError(f"{where}: two steps are called {twice[0]!r}; give other names")
        if all(step.is_absent or step.is_optional for step in steps):
            raise TopologyError(f"{where}: give a step of at least one record")
        if steps[0].is_absent:
            raise TopologyError(
                f"{where}: step {names[0]!r} is absent, and nothing is before it; let a pattern "
                "begin with a step that has records"
            )
        last = steps[-1]
        if last.is_optional or (last.most == inf and not last.is_absent):
            reason = "optional" if last.is_optional else f"at_least={last.least}"
            raise TopologyError(
                f"{where}: step {last.name!r} is the last one and {reason}, so nothing says when "
                f"a match ends: leave it out, or give times={last.least}; or let a step follow, "
                "which may be absent=True: then the match ends when it is `within` old"
            )
        self.steps, self.within, self.skip = tuple(steps), length_of(within), skip

    def next_steps(self, at: int, taken: int, *, has_gap: bool) -> Iterator[int]:
        """The steps that the next record may be of, in the order in which they are tried. The last
        record was of step `at`, -1: there is none, which has `taken` records; `has_gap`: and other
        records have followed."""
        if at >= 0:
            step = self.steps[at]
            if taken < step.most and not (step.is_strict and has_gap):
                yield at
            if taken < step.least:
                return
        for place in range(at + 1, len(self.steps)):
            step = self.steps[place]
            if not (step.is_strict and has_gap):
                yield place
            if not (step.is_absent or step.is_optional):
                return

    def may_end(self, at: int, taken: int) -> bool:
        """Whether no record must follow."""
        return taken >= self.steps[at].least and all(
            step.is_absent or step.is_optional for step in self.steps[at + 1 :]
        )


@dataclass(slots=True)
class Candidate:
    """A match that has begun."""

    first_at: Time  # the time of its first record
    at: int  # the step of its last record
    has_gap: bool = False  # whether other records have followed that one
    is_complete: bool = False  # it waits only for those that began before it
    taken: list[list[int]] = field(default_factory=list)  # of each step up to `at`: its records
    is_dead: bool = False

    @property
    def numbers(self) -> Iterator[int]:
        """Its records, in their order."""
        return (number for numbers in self.taken for number in numbers)

    def take(self, place: int, number: int) -> None:
        """Add a record to a step."""
        self.taken += [[] for _ in range(place + 1 - len(self.taken))]
        self.taken[place].append(number)
        self.at, self.has_gap = place, False


class Candidates:
    """The matches of one key that have begun, and their records."""

    def __init__(
        self,
        pattern: Pattern,
        next_number: int = 0,
        records: Iterable[tuple[int, Any]] = (),
        rows: Iterable[Sequence[Any]] = (),
    ) -> None:
        """What an earlier object has left: its `next_number`, the items of its `records`, and its
        `rows`."""
        self.pattern, self.next_number = pattern, next_number
        self.records: dict[int, Any] = dict(records)  # of the matches that have begun, by number
        self._open = [Candidate(*row) for row in rows]

    @property
    def rows(self) -> list[list[Any]]:
        """The matches that have begun, as lists."""
        return [
            [
                candidate.first_at,
                candidate.at,
                candidate.has_gap,
                candidate.is_complete,
                candidate.taken,
            ]
            for candidate in self._open
        ]

    @property
    def deadline(self) -> Time | None:
        """When the first match that has begun is too old; None: there is none."""
        waiting = (candidate for candidate in self._open if not candidate.is_complete)
        first = next(waiting, None)
        return None if first is None else self._deadline(first)

    def add(self, time: Time, record: Any) -> list[Match[Any]]:
        """Add the next record. Returns the matches that are known now."""
        matches = self.expire(time)
        number, self.next_number = self.next_number, self.next_number + 1
        self.records[number] = record
        for candidate in self._open:
            if not candidate.is_complete:
                self._advance(candidate, number)
        self._begin(time, number)
        return matches + self._settled()

    def expire(self, time: Time) -> list[Match[Any]]:
        """No record before this time follows. Returns the matches that are known now."""
        for candidate in self._open:
            if not candidate.is_complete and not is_before(time, self._deadline(candidate)):
                candidate.is_complete = self._may_end(candidate)
                candidate.is_dead = not candidate.is_complete
        return self._settled()

    def _begin(self, time: Time, number: int) -> None:
        candidate = Candidate(time, -1)
        self._advance(candidate, number)
        if candidate.at >= 0:
            self._open.append(candidate)

    def _advance(self, candidate: Candidate, number: int) -> None:
        """Give the record with this number to the first step of a candidate that it fits."""
        steps = self.pattern.steps
        for place in self._next_steps(candidate):
            if self._fits(steps[place], candidate, self.records[number]):
                if steps[place].is_absent:
                    candidate.is_dead = True
                    return
                candidate.take(place, number)
                is_last = place == len(steps) - 1
                candidate.is_complete = is_last and self._may_end(candidate)
                return
        candidate.has_gap = True
        has_more = any(not steps[place].is_absent for place in self._next_steps(candidate))
        candidate.is_dead = candidate.at >= 0 and not has_more and not self._may_end(candidate)

    def _fits(self, step: PatternStep[Any], candidate: Candidate, record: Any) -> bool:
        if step.reads_match:
            return bool(step.fits(record, self._match(candidate)))
        return bool(step.fits(record))

    def _next_steps(self, candidate: Candidate) -> Iterator[int]:
        taken = len(candidate.taken[-1]) if candidate.taken else 0
        return self.pattern.next_steps(candidate.at, taken, has_gap=candidate.has_gap)

    def _may_end(self, candidate: Candidate) -> bool:
        return self.pattern.may_end(candidate.at, len(candidate.taken[-1]))

    def _deadline(self, candidate: Candidate) -> Time:
        return plus(candidate.first_at, self.pattern.within)

    def _settled(self) -> list[Match[Any]]:
        """Take the matches that no earlier one may exclude any more."""
        matches, skip = list[Match[Any]](), self.pattern.skip
        self._open = [candidate for candidate in self._open if not candidate.is_dead]
        if skip == "to_next":
            matches = [self._match(candidate) for candidate in self._open if candidate.is_complete]
            self._open = [candidate for candidate in self._open if not candidate.is_complete]
        while self._open and self._open[0].is_complete and skip != "to_next":
            complete, *others = self._open
            matches.append(self._match(complete))
            last = max(complete.numbers) + (skip == "past_last")
            self._open = [candidate for candidate in others if next(candidate.numbers) >= last]
        used = {number for candidate in self._open for number in candidate.numbers}
        self.records = {n: record for n, record in self.records.items() if n in used}
        return matches

    def _match(self, candidate: Candidate) -> Match[Any]:
        taken: Iterable[list[int]] = [*candidate.taken, *([] for _ in self.pattern.steps)]
        return {
            step.name: [self.records[number] for number in numbers]
            for step, numbers in zip(self.pattern.steps, taken, strict=False)
            if not step.is_absent
        }


class FindMatches:
    """The function of a `match` behind `in_order`, and its timers: what is made of each match of a
    key."""

    def __init__(self, pattern: Pattern, reads: Schema, select: Callable[..., Any]) -> None:
        self.pattern, self.reads, self.select = pattern, reads, select
        shape = pattern.within, [step.shape for step in pattern.steps]
        self._shape = crc32(repr(shape).encode())  # stored with the candidates

    def __call__(self, record: Any, state: KeyState[Any]) -> list[Any]:
        return self._selected(state, lambda candidates: candidates.add(state.time, record))

    def on_timer(self, key: Any, state: KeyState[Any]) -> list[Any]:
        """Of the matches that have begun, the first is `within` old."""
        return self._selected(state, lambda candidates: candidates.expire(state.time))

    def _selected(
        self, state: KeyState[Any], change: Callable[[Candidates], list[Match[Any]]]
    ) -> list[Any]:
        """What is made of the matches that a change of the candidates has found."""
        shape, next_number, items, rows = state.value or (self._shape, 0, (), ())
        if shape != self._shape:
            raise StateMismatch(
                "match: its state has matches that have begun with other steps or another within=; "
                "give it the steps that it had, or another name=, with which it begins empty"
            )
        numbers = [number for number, _ in items]
        records = self.reads.build([row for _, row in items])
        candidates = Candidates(self.pattern, next_number, zip(numbers, records, strict=True), rows)
        matches = change(candidates)
        state.timer, state.value = candidates.deadline, None
        if candidates.rows:
            of_records = self.reads.rows([*candidates.records.values()])
            items = [[n, [*row]] for n, row in zip(candidates.records, of_records, strict=True)]
            state.value = [self._shape, candidates.next_number, items, candidates.rows]
        return [self.select(match) for match in matches]
