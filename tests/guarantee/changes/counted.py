"""A topology that counts words, changes and kills for its run, and a check of its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

from sunshower import Bolt, Context, KeyState, Spout, Topology
from sunshower.config import Internals
from sunshower.errors import ClusterError, LifecycleError
from sunshower.runtime.plan import ACKER
from sunshower.simulation.cluster import SimRun
from sunshower.state import MemoryState

TOTAL, SECONDS, WORDS = 60, 1.5, "abcdefgh"


class Word(NamedTuple):
    number: int
    text: str


class Words(Spout[Word]):
    """`TOTAL` words over `SECONDS`."""

    def open(self, context: Context) -> None:
        self.clock = context.clock

    def records(self) -> Iterator[Word | None]:
        begun_s = self.clock.now()
        for number in range(TOTAL):
            while self.clock.now() < begun_s + number * SECONDS / TOTAL:
                yield None
            yield Word(number, WORDS[number * number % len(WORDS)])


def parse(word: Word) -> Iterator[Word]:
    yield word


def counted(word: Word, state: KeyState[dict[str, Any]]) -> list[Word]:
    """Keeps the numbers of each word, and how often it was counted."""
    if state.value is None:
        state.value = {"numbers": set(), "times": 0}
    state.value["numbers"].add(word.number)
    state.value["times"] += 1
    return [word]


class Note(Bolt[Word, None]):
    """Counts the words in memory; its state moves with its task."""

    def prepare(self, context: Context) -> None:
        self.seen: Counter[int] = Counter()

    def process(self, word: Word) -> None:
        self.seen[word.number] += 1

    def snapshot(self) -> Any:
        return self.seen

    def restore(self, state: Any) -> None:
        self.seen = state

    def result(self) -> Any:
        return self.seen


def program(state: MemoryState, sink: Bolt[Word, None] | None = None, **settings: Any) -> Topology:
    """Counts words by key in a store that survives the processes. `sink` is the last bolt."""
    settings = {
        "workers": 3,
        "attempts_max": 1_000,
        "internals": Internals(peer_link_retry_s=0.5),
    } | settings
    topology = Topology("words", **settings)
    parsed = topology.spout("words", Words()).shuffle().bolt("parse", parse, 2)
    counts = parsed.group_by("text").process(counted, state=state, name="count", parallelism=2)
    counts.shuffle().bolt("sink", Note() if sink is None else sink)
    return topology


def rescale(run: SimRun, draw: Random) -> None:
    """Change the numbers of tasks, and perhaps of workers, without waiting for the end."""
    names = draw.sample(["parse", "count", ACKER], k=draw.randint(1, 3))
    run.rebalance(
        workers=draw.choice([None, 1, 2, 4]),
        tasks={name: draw.randint(1, 6) for name in names},
        wait_s=draw.choice([0.0, 0.2, None]),
        waits=False,
    )


def kill_a_process(run: SimRun, draw: Random) -> None:
    """Kill a worker or the master."""
    with suppress(ClusterError):  # it is dead already
        if draw.random() < 0.4:
            run.kill_master()
        else:
            run.kill_worker(draw.choice(run.plan.workers))


def change(run: SimRun, draw: Random, steps: int, deaths: int) -> None:
    """Change the run `steps` times under load, each time with up to `deaths` kills."""
    for _ in range(steps):
        run.wait(draw.expovariate(4.0))
        with suppress(LifecycleError):  # the last change still runs, or all is finished
            rescale(run, draw)
        for _ in range(draw.randint(0, deaths)):
            run.wait(draw.expovariate(8.0))
            kill_a_process(run, draw)


def check(state: MemoryState, *, is_exact: bool) -> None:
    """Check that each word was counted once, or, if not `is_exact`, at least once."""
    entries = dict(state.items())
    for text in sorted({WORDS[n * n % len(WORDS)] for n in range(TOTAL)}):
        numbers = {n for n in range(TOTAL) if WORDS[n * n % len(WORDS)] == text}
        assert entries[text]["numbers"] == numbers, f"{text}: something is lost"
        times = entries[text]["times"]
        assert times == len(numbers) if is_exact else times >= len(numbers), (text, times)


class Sink(Bolt[Word, None]):
    """A bolt without a state."""

    def process(self, word: Word) -> None: ...

    def snapshot(self) -> None: ...

    def restore(self, state: None) -> None:
        raise AssertionError("new code gets no state of the old code")


def upper(word: Word) -> Iterator[Word]:
    """Other code that does the same as `parse`."""
    yield Word(word.number, word.text)


class PrepareRaises(Sink):
    """Its `prepare` raises."""

    def prepare(self, context: Context) -> None:
        raise ValueError("no such table")


def next_program(
    state: MemoryState,
    draw: Random,
    *,
    opens: bool,
    ticks: Bolt[Word, None] | None = None,
    **settings: Any,
) -> Topology:
    """Another version of `program` with one more bolt, other numbers of tasks, and, if given, a
    bolt whose `prepare` raises, or one that ticks."""
    settings = {"workers": draw.randint(1, 4), "attempts_max": 1_000} | settings
    topology = Topology("words", **settings)
    words = topology.spout("words", Words()).shuffle().bolt("upper", upper, draw.randint(1, 3))
    parsed = words.shuffle().bolt("parse", parse, draw.randint(1, 3))
    counts = parsed.group_by("text").process(
        counted, state=state, name="count", parallelism=draw.randint(1, 4)
    )
    counts.shuffle().bolt("sink", Sink() if opens else PrepareRaises())
    if ticks is not None:
        parsed.shuffle().bolt("ticks", ticks, tick_s=0.05)
    return topology
