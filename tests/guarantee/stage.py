"""A small simulated topology, and a journal of what its tasks did and its spout received.

numbers ──▶ work ──▶ store        and an acker; each in its own worker (`isolate`),
                                  or together in two workers (`pack`)
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from sunshower import (
    Bolt,
    Collector,
    Context,
    DeadLetter,
    Failure,
    Number,
    Spout,
    Topology,
    Tuple,
)
from sunshower.runtime.events.injected_faults import Link
from sunshower.runtime.plan import Layout, make_plan
from sunshower.testing import Shared
from tests.runtime.network import Network

TOTAL = 40
Work = Callable[[int, int], None]  # number, how often it was processed before; may raise


class Done(NamedTuple):
    value: int


@dataclass(frozen=True)
class FailCall:
    """A call of Spout.fail."""

    at_s: float
    number: int
    failure: Failure


class Journal(Shared):
    """What all instances of all tasks did: they share one journal."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.failures: list[FailCall] = []
        self.acked_s: defaultdict[int, list[float]] = defaultdict(list)
        self.worked_s: defaultdict[int, list[float]] = defaultdict(list)
        self.stored: Counter[int] = Counter()
        self.letters: list[DeadLetter] = []

    def first_failure(self, number: int) -> Failure:
        """The first failure of a number that its spout received."""
        return next(call.failure for call in self.failures if call.number == number)

    def replayed_after_s(self, number: int) -> float:
        """The time from the first to the second processing of a number."""
        first, second = self.worked_s[number][:2]
        return second - first


class Numbers(Spout[Number]):
    """The runtime keeps and replays its records; message ids are the numbers."""

    def __init__(self, journal: Journal, total: int) -> None:
        self.journal, self.total = journal, total

    def records(self) -> Iterator[Number]:
        return map(Number, range(self.total))

    def ack(self, message_id: int) -> None:
        self.journal.acked_s[message_id].append(self.journal.now())

    def fail(self, message_id: int, failure: Failure) -> None:
        self.journal.failures.append(FailCall(self.journal.now(), message_id, failure))


class Worker(Bolt[Number, Done]):
    """Calls `work` for each number, and acks the tuple, or does what the exception says."""

    def __init__(self, journal: Journal, work: Work) -> None:
        self.journal, self.work = journal, work

    def prepare(self, context: Context) -> None:
        self.clock = context.clock

    def execute(self, tuple: Tuple[Number], out: Collector[Done]) -> None:
        number = tuple.record.value
        before = len(self.journal.worked_s[number])
        self.journal.worked_s[number].append(self.journal.now())
        try:
            self.work(number, before)
        except Blocked:
            self.clock.sleep(3_600.0)
        except FailTuple as refusal:
            out.fail(tuple, str(refusal))
        except Forget:
            pass
        else:
            out.emit(Done(number), tuple)
            out.ack(tuple)


class Store(Bolt[Any, None]):
    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def process(self, record: Any) -> None:
        self.journal.stored[record[0]] += 1


class Letters(Bolt[DeadLetter, None]):
    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def process(self, record: DeadLetter) -> None:
        self.journal.letters.append(record)


class FailTuple(Exception):
    """Fail the tuple with this reason."""


class Forget(Exception):
    """Neither ack nor fail the tuple."""


class Blocked(Exception):
    """Never return."""


def do_nothing(number: int, before: int) -> None: ...


class Stage:
    """The topology in the simulator, its journal and its network."""

    def __init__(
        self,
        work: Work = do_nothing,
        *,
        seed: int = 0,
        layout: Layout = Layout.ISOLATE,
        link: Link | None = None,
        total: int = TOTAL,
        spout: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.journal = Journal(self.now)
        self.total = total
        settings = {"spout_pending": 16, "ackers": 1, "workers": 2, **settings}
        topology = Topology("stage", **settings)
        self.declare(topology, work, spout or {})
        plan = make_plan(topology.graph(), layout)
        self.net = Network(plan, seed, link=link)

    def declare(self, topology: Topology, work: Work, spout: dict[str, Any]) -> None:
        """Declare the spout and the bolts."""
        numbers = topology.spout("numbers", Numbers(self.journal, self.total), **spout)
        done = numbers.shuffle().bolt("work", Worker(self.journal, work))
        done.shuffle().bolt("store", Store(self.journal))
        if "retry" in spout:
            letters = numbers.stream("dead_letters", DeadLetter)
            letters.shuffle().bolt("letters", Letters(self.journal))

    def run(self) -> Journal:
        """Run to the end, and check that each number is acked, and stored or a dead letter."""
        self.net.run()
        missing = set(range(self.total)) - set(self.journal.acked_s)
        assert not missing, f"never acked: {sorted(missing)}"
        safe = {*self.journal.stored, *(letter.message_id for letter in self.journal.letters)}
        assert not set(range(self.total)) - safe, "acked, but neither stored nor a dead letter"
        return self.journal

    def worker_of(self, component: str) -> int:
        """The worker of its first task."""
        return self.net.plan.tasks_of(component)[0].worker

    def now(self) -> float:
        """The virtual time in seconds."""
        return self.net.now()

    def until_acked(self, count: int) -> None:
        """Run until `count` numbers are acked; others are still pending."""
        self.net.until(lambda: len(self.journal.acked_s) >= count)

    def crash(self, *components: str) -> float:
        """Kill the workers of these components. Returns the time."""
        for worker in {self.worker_of(component) for component in components}:
            self.net.crash(worker)
        return self.net.now()
