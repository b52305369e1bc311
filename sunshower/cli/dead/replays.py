"""Replays dead letters: a running topology emits their records again, some letters at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import TYPE_CHECKING

from sunshower.cli.dead.letters import StoredLetter, indexes_of
from sunshower.errors import ClusterError, SunshowerError, TopologyFailed

if TYPE_CHECKING:
    from sunshower.actors.run import RayRun

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
    indexes = indexes_of(letters)
    new = {one.id: one for one in letters if one.id not in indexes[one.index].replayed}
    return list(new.values())


def replayed(
    ask: Ask, letters: Iterable[StoredLetter], name: str, wall: Callable[[], float]
) -> Iterator[tuple[StoredLetter, str | SunshowerError]]:
    """Send letters to topology `name`, and note in their indexes how they end, at the time of
    `wall`. Yields how each has ended, or why not. Raises other errors than those of single letters,
    once the letters under way have ended."""
    letters = list(letters)
    indexes, left = indexes_of(letters), iter(letters)
    under_way: dict[Future[str], StoredLetter] = {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        while True:
            # Not all at once: the end of this process waits for what the pool has.
            for one in islice(left, _AT_ONCE - len(under_way)):
                under_way[pool.submit(ask, one)] = one
            if not under_way:
                return
            for done in wait(under_way, return_when=FIRST_COMPLETED).done:
                one, error = under_way.pop(done), done.exception()
                if error is None:
                    indexes[one.index].add(one, name, done.result(), wall())
                    yield one, done.result()
                elif isinstance(error, SunshowerError) and not isinstance(error, _FATAL):
                    yield one, error
                else:
                    raise error
