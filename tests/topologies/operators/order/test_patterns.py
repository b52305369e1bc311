"""Random patterns match as a plain matcher finds, and wrong patterns say what helps.

The plain matcher tries each record with regular expressions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from random import Random
from typing import Any, NamedTuple, get_args

import pytest

from sunshower import PatternStep
from sunshower.errors import TopologyError
from sunshower.topologies.operators.keyed.patterns import Candidates, Match, Pattern, Skip
from tests.seeds import seeds

LABELS = "ABCD"
INF = float("inf")


class Event(NamedTuple):
    at: int
    kind: str
    value: int


# ---- plain matcher -------------------------------------------------------------------------------
# What a match has done with its records is a text: the label of a step, or "." for a record between
# them. A regular expression says which texts are matches; an absent step ends one.


def expression(steps: Sequence[PatternStep[Any]], place: int = 0) -> str:
    if place == len(steps):
        return r"\.*" if steps[-1].is_absent else ""
    step, label = steps[place], LABELS[place]
    between = "" if step.is_strict else r"\.*"
    first = between if place else ""
    remaining = expression(steps, place + 1)
    if step.is_absent:
        return f"(?:{first}{label}|{remaining})"
    maximum = "" if step.most == INF else int(step.most) - 1
    records = f"{first}{label}(?:{between}{label}){{{step.least - 1},{maximum}}}"
    return (f"(?:{records})?" if step.is_optional else records) + remaining


def endings(steps: Sequence[PatternStep[Any]]) -> Iterator[str]:
    """The shortest texts with which any text that may become a match becomes one."""
    for place, step in enumerate(steps):
        options = []
        for label, later in zip(LABELS[place + 1 :], steps[place + 1 :], strict=False):
            least = [] if later.is_absent else [label * later.least]
            options.append([*least, *([""] if later.is_absent or later.is_optional else [])])
        for count in range(step.least + 1):
            for tail in product(*options):
                yield LABELS[place] * count + "".join(tail)


class PlainMatcher:
    def __init__(self, pattern: Pattern, events: Sequence[Event]) -> None:
        self.steps, self.pattern, self.events = pattern.steps, pattern, events
        self.expression = re.compile(expression(pattern.steps))
        self.endings = {*endings(pattern.steps)}

    def is_match(self, text: str) -> bool:
        return self.expression.fullmatch(text) is not None

    def may_become(self, text: str) -> bool:
        return any(self.is_match(text + ending) for ending in self.endings)

    def fits(self, place: int, text: str, begin: int) -> bool:
        step, event = self.steps[place], self.events[begin + len(text)]
        if not self.may_become(text + LABELS[place]):
            return False
        arguments = [self.match(text, begin)] if step.reads_match else []
        return bool(step.fits(event, *arguments))

    def match(self, text: str, begin: int) -> Match[Event]:
        return {
            step.name: [
                self.events[begin + at] for at, letter in enumerate(text) if letter == label
            ]
            for label, step in zip(LABELS, self.steps, strict=False)
            if not step.is_absent
        }

    def text_from(self, begin: int) -> str | None:
        """What the match that begins with this record has done; None: there is none."""
        text, steps = "", self.steps
        last = len(steps) - 1
        for event in self.events[begin:]:
            if event.at - self.events[begin].at >= self.pattern.within:
                break
            fitting = [place for place in range(len(steps)) if self.fits(place, text, begin)]
            if fitting:
                text += LABELS[fitting[0]]
                if steps[fitting[0]].is_absent:
                    return None
                if fitting[0] == last and self.is_match(text):
                    return text
            elif text and self.may_become(text + "."):
                text += "."
            else:
                return None
        return text if steps[-1].is_absent and self.is_match(text) else None

    def matches(self) -> list[Match[Event]]:
        matches, begin = list[Match[Event]](), 0
        while begin < len(self.events):
            text = self.text_from(begin)
            end = begin
            if text is not None:
                matches.append(self.match(text, begin))
                last = begin + len(text.rstrip(".")) - 1
                end = {"past_last": last, "to_last": last - 1, "to_next": begin}[self.pattern.skip]
            begin = max(end, begin) + 1
        return matches


# ---- random patterns -----------------------------------------------------------------------------


def of_kinds(kinds: str, event: Event) -> bool:
    return event.kind in kinds


def rising(kinds: str, event: Event, match: Match[Event]) -> bool:
    """Of these kinds, and with a value above that of the last record of the match."""
    values = [known for events in match.values() for known in events]
    last = max(values, key=lambda known: known.at, default=None)
    return event.kind in kinds and (last is None or event.value >= last.value)


def random_pattern(draw: Random) -> Pattern:
    steps = list[PatternStep[Event]]()
    for number in range(draw.randint(1, 4)):
        kinds = "".join(draw.sample("xyz", draw.randint(1, 2)))
        fits = partial(draw.choice((of_kinds, of_kinds, rising)), kinds)
        how: dict[str, Any] = {"strict": draw.random() < 0.3}
        match draw.randrange(6):
            case 0:
                how["times"] = draw.randint(2, 3)
            case 1:
                how["at_least"] = draw.randint(1, 2)
            case 2 if number:
                how["absent"] = True
            case 3:
                how["optional"] = True
            case 4:
                how |= {"at_least": 1, "optional": True}
        steps.append(PatternStep(f"s{number}", fits, **how))
    try:
        return Pattern(steps, draw.choice((3, 8, 30)), draw.choice(get_args(Skip)))
    except TopologyError:
        return random_pattern(draw)


def found_in(pattern: Pattern, events: Sequence[Event], draw: Random) -> list[Match[Event]]:
    """What the matcher finds, restored from its rows now and then, and told about time."""
    candidates, matches = Candidates(pattern), list[Match[Event]]()
    for event in events:
        if draw.random() < 0.3:
            matches += candidates.expire(event.at)
        if draw.random() < 0.3:
            restored = candidates.next_number, candidates.records.items(), candidates.rows
            candidates = Candidates(pattern, *restored)
        matches += candidates.add(event.at, event)
        assert candidates.deadline is None or candidates.deadline > event.at
    return matches + candidates.expire(INF)


def in_order_of_begin(matches: Sequence[Match[Event]]) -> list[Any]:
    return sorted(
        [[(name, *events) for name, events in match.items()] for match in matches], key=repr
    )


@seeds(200)
def test_random_patterns_match_as_a_plain_matcher_finds(seed: int) -> None:
    draw, count = Random(seed), 0
    for _ in range(200):
        pattern = random_pattern(draw)
        at, events = 0, list[Event]()
        for number in range(draw.randint(0, 14)):
            at += draw.choice((0, 1, 1, 2, 9))
            events.append(Event(at, draw.choice("xyz"), number * draw.choice((1, 0))))
        matches, expected = found_in(pattern, events, draw), PlainMatcher(pattern, events).matches()
        about = [step.shape for step in pattern.steps], pattern.within, pattern.skip, events
        assert in_order_of_begin(matches) == in_order_of_begin(expected), about
        if pattern.skip != "to_next":
            assert matches == expected, about
        count += len(matches)
    assert count > 50


# ---- named patterns ------------------------------------------------------------------------------


def matches_in(
    text: str, *steps: PatternStep[Event], within: int = 100, skip: Skip = "past_last"
) -> Any:
    """The matches in a text of kinds, which are one apart: the places of each step."""
    events = [Event(at, kind, 0) for at, kind in enumerate(text)]
    matches = found_in(Pattern(steps, within, skip), events, Random(0))
    return [
        " ".join(
            "".join(text[event.at] + str(event.at) for event in events) or "-"
            for events in match.values()
        )
        for match in matches
    ]


def kind(letter: str, **how: Any) -> PatternStep[Event]:
    return PatternStep(letter, lambda event: event.kind == letter, **how)


@pytest.mark.parametrize(
    ("text", "steps", "more", "expected"),
    [
        ("aab", (kind("a"), kind("b")), {}, ["a0 b2"]),
        ("axb", (kind("a"), kind("b", strict=True)), {}, []),
        ("aab", (kind("a"), kind("b", strict=True)), {}, ["a1 b2"]),
        ("aaaaaa", (kind("a", times=3),), {}, ["a0a1a2", "a3a4a5"]),
        ("aaaa", (kind("a", times=3),), {"skip": "to_next"}, ["a0a1a2", "a1a2a3"]),
        ("aaaaa", (kind("a", times=3),), {"skip": "to_last"}, ["a0a1a2", "a2a3a4"]),
        ("aaxab", (kind("a", at_least=2), kind("b")), {}, ["a0a1a3 b4"]),
        ("axyc", (kind("a"), kind("b", optional=True), kind("c")), {}, ["a0 - c3"]),
        ("abc", (kind("a"), kind("b", absent=True), kind("c")), {}, []),
        ("abac", (kind("a"), kind("b", absent=True), kind("c")), {}, ["a2 c3"]),
        ("a" + "x" * 9, (kind("a"), kind("b", absent=True)), {"within": 5}, ["a0"]),
        ("axxxb", (kind("a"), kind("b", absent=True)), {"within": 5}, []),
        ("axxxxb", (kind("a"), kind("b", absent=True)), {"within": 5}, ["a0"]),
        ("axxxb", (kind("a"), kind("b")), {"within": 4}, []),
    ],
)
def test_patterns_match_as_they_say(text: str, steps: Any, more: Any, expected: Any) -> None:
    assert matches_in(text, *steps, **more) == expected


def test_a_later_match_waits_for_one_that_has_begun_before_it() -> None:
    """As in SQL. The second record has found its partner first, and loses it to the first one, or
    has it when the first one is too old."""
    above = PatternStep[Event]("above", lambda event, match: event.value > match["low"][0].value)
    low = PatternStep[Event]("low", lambda event: event.kind == "a")
    events = [Event(0, "a", 9), Event(1, "a", 1), Event(2, "b", 5)]
    for last, expected in ((Event(3, "b", 10), (0, 3)), (Event(30, "x", 0), (1, 2))):
        candidates = Candidates(Pattern([low, above], within=10))
        assert [candidates.add(event.at, event) for event in events] == [[], [], []]
        (match,) = candidates.add(last.at, last)
        assert (match["low"][0].at, match["above"][0].at) == expected


# ---- wrong patterns ------------------------------------------------------------------------------


def yes(event: Event) -> bool:
    return True


def nothing() -> bool:
    return True


async def later(event: Event) -> bool:
    return True


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: PatternStep("a b", yes), "its name is a text"),
        (lambda: PatternStep("a", yes, time=3), "no setting 'time'"),  # type: ignore[call-overload]
        (lambda: PatternStep("a", yes, times=0), "times is 0"),
        (lambda: PatternStep("a", yes, times=2, at_least=1), "not both"),
        (lambda: PatternStep("a", yes, absent=True, times=2), "leave out times="),
        (lambda: PatternStep("a", later), "no plain function"),  # type: ignore[arg-type]
        (lambda: PatternStep("a", nothing), "no plain function"),  # type: ignore[arg-type]
        (lambda: Pattern([], 1), "at least one record"),
        (lambda: Pattern([yes], 1), "give PatternStep"),  # type: ignore[list-item]
        (lambda: Pattern([kind("a"), kind("a")], 1), "two steps are called 'a'"),
        (lambda: Pattern([kind("a", optional=True)], 1), "at least one record"),
        (lambda: Pattern([kind("a", absent=True), kind("b")], 1), "nothing is before it"),
        (lambda: Pattern([kind("a", at_least=3)], 1), "times=3"),
        (lambda: Pattern([kind("a"), kind("b", optional=True)], 1), "leave it out"),
        (lambda: Pattern([kind("a")], 0), "within is 0"),
        (lambda: Pattern([kind("a")], 1, "past"), "one of"),  # type: ignore[arg-type]
    ],
)
def test_wrong_patterns_say_what_helps(wrong: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        wrong()
