"""Computes which searches of a session led to a click, like Bytewax's search_session.py."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sunshower import JsonLines, Records, Topology, collect, sessions


class Event(NamedTuple):
    user: int
    at: datetime
    kind: str
    text: str = ""


class Searches(NamedTuple):
    user: int
    ended: datetime
    events: list[Any]


class Rate(NamedTuple):
    user: int
    click_through: float


def after(seconds: int) -> datetime:
    return datetime(2023, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


EVENTS = [
    Event(1, after(0), "open"),
    Event(1, after(1), "search", "dogs"),
    Event(1, after(2), "results", "fido, rover, buddy"),
    Event(1, after(3), "click", "rover"),
    Event(1, after(4), "search", "cats"),
    Event(1, after(5), "results", "fluffy, burrito, kathy"),
    Event(1, after(6), "click", "fluffy"),
    Event(2, after(7), "open"),
    Event(1, after(8), "click", "kathy"),
    Event(2, after(9), "search", "fruit"),
    Event(1, after(10), "close"),
    Event(2, after(11), "close"),
]


def rates(session: Searches) -> Iterator[Rate]:
    """One rate for each search: 1.0 if a click followed it."""
    kinds = [kind for _, kind in sorted(session.events)]
    for number, kind in enumerate(kinds):
        if kind == "search":
            rest = kinds[number + 1 :]
            until = rest.index("search") if "search" in rest else len(rest)
            yield Rate(session.user, float("click" in rest[:until]))


topology = Topology("search-sessions")
events = topology.spout("events", Records(EVENTS, type=Event))
window = sessions(gap=5, field="at", late=10)
searches = events.group_by("user").window(window, collect("at", "kind"), fields=Searches)
searches.flat_map(rates).shuffle().bolt("out", JsonLines("rates.jsonl"))
