"""Replays dead letters: a running topology emits their records again, some letters at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from sunshower.cli.dead.letters import StoredLetter, indexes_of, marks_of
from sunshower.errors import ClusterError, SunshowerError, TopologyFailed

if TYPE_CHECKING:
    from sunshower.actors.run import RayRun

_LOOK_S = 2.0
WAIT_S = 60.0  # how long a letter may take, unless told otherwise
_AT_ONCE = 16  # letters that a topology is sent at a time
_FATAL = (ClusterError, TopologyFailed)  # no other letter can be replayed either
Ask = Callable[[StoredLetter], str]  # replays one letter; returns how it has ended


def ask_of(run: RayRun, timeout_s: float = WAIT_S) -> Ask:
    """Sends a letter to its spout, and waits for its end."""

    def ask(one: StoredLetter) -> str:
        (outcome,) = run.ask(one.letter.spout, one.letter, timeout_s=timeout_s)
        return str(outcome)

    return ask


def not_replayed(letters: Iterable[StoredLetter]) -> list[StoredLetter]:
    """Those without the ones that were replayed before, and without second copies."""
    letters = list(letters)
    marks = marks_of(letters)
    return list({one.id: one for one in letters if one.id not in marks}.values())


def outages_of(
    run: RayRun, letters: Iterable[StoredLetter], now: Callable[[], float]
) -> Callable[[], Iterator[str]]:
    """A function that yields the news since its last call, as lines: which components wait for a
    dependency, with the error, and which continue. It covers the components that these letters
    reach."""
    from sunshower.cli.health import WaitNews

    news = WaitNews(run.overview().reached_from({one.letter.spout for one in letters}))

    def look() -> Iterator[str]:
        with suppress(*_FATAL):  # the letters say that, too
            yield from news.see(run.snapshot(), now())

    return look


def replayed(
    ask: Ask,
    letters: Iterable[StoredLetter],
    name: str,
    wall: Callable[[], float],
    look: Callable[[], object] = lambda: None,
    look_s: float = _LOOK_S,
) -> Iterator[tuple[StoredLetter, str | SunshowerError]]:
    """Send letters to topology `name`, and write their outcomes into their indexes, with the time
    of `wall`. Yields the outcome or the error of each letter. Calls `look` if none has ended for
    `look_s` seconds. Other errors than those of single letters are raised when all letters that
    were sent have ended. The end of the process does not wait for these letters."""
    letters = list(letters)
    indexes, left = indexes_of(letters), iter(letters)
    ended = SimpleQueue[tuple[StoredLetter, str | BaseException]]()

    def send(one: StoredLetter) -> None:
        try:
            ended.put((one, ask(one)))
        except BaseException as error:  # the loop below yields or raises it
            ended.put((one, error))

    under_way, fatal = 0, None
    while True:
        for one in islice(left, 0 if fatal else _AT_ONCE - under_way):
            Thread(target=send, args=(one,), daemon=True).start()
            under_way += 1
        if not under_way:
            break
        try:
            one, outcome = ended.get(timeout=look_s)
        except Empty:
            look()
            continue
        under_way -= 1
        if isinstance(outcome, str):
            indexes[one.index].add(one, name, outcome, wall())
            yield one, outcome
        elif isinstance(outcome, SunshowerError) and not isinstance(outcome, _FATAL):
            yield one, outcome
        else:
            fatal = fatal or outcome
    if fatal is not None:
        raise fatal
