"""The retry policy of a spout: attempts, back-off, and dead letters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, NamedTuple

from sunshower.arguments import COUNT, PROBABILITY, SECONDS, Instance, Rule, Values, check_all
from sunshower.errors import ConfigError, DuplicateComponent, TopologyError
from sunshower.texts import carried, clip

DEAD_LETTERS = "dead_letters"
ACKED, DEAD_AGAIN = "acked", "dead letter"  # how the replay of a letter has ended
_SHARE_MIN = 32  # bytes that each value of a letter may have in any case


class DeadLetter(NamedTuple):
    """A tuple that has used up its attempts, with the last failure that counted.

    Dates, decimals, UUIDs, Enums and records are here as JsonLines writes them, if the annotation
    of their field says what they are. Other values that JSON lacks have marks, such as a tuple
    {"()": [1, 2]}, so that a replay restores them; what no mark is for is here as its repr. A
    letter that is larger than `record_bytes_max`, or than its Kafka topic takes, is clipped, with a
    marker in each clipped text.
    """

    message_id: Any
    record: dict[str, Any]  #: field → value
    spout: str
    attempts: int  #: charged attempts: failures of the runtime do not count
    cause: str
    component: str  #: where it failed; empty if unknown
    task: int  #: among the tasks of its component; -1: unknown
    worker: int  #: -1: unknown
    reason: str
    exception: str  #: the exception's type
    traceback: str
    stream: str = "default"  #: of the spout, that the tuple was emitted on
    time: float = 0.0  #: Unix time at which it became a dead letter; 0: unknown
    as_text: tuple[str, ...] = ()  #: fields of `record` whose value is another form of it
    marked: tuple[str, ...] = ()  #: fields of `record` whose value has marks


class LetterStore(NamedTuple):
    """Where a bolt writes the dead letters that it reads; its `__sunshower_letter_store__` returns
    it."""

    files: tuple[str, ...] = ()  # absolute paths of JSON lines files, one for each task
    topic: str = ""  # or a Kafka topic
    settings: Mapping[str, Any] = {}  # of Kafka's client, without secrets


def fitted(letter: DeadLetter, bytes_max: int, size: Callable[[DeadLetter], int]) -> DeadLetter:
    """The letter with its largest values clipped so far that `size` of it is at most `bytes_max`
    (or about 500, if that is more), and with values that any encoder takes."""
    share = bytes_max
    while True:
        record = {field: carried(value, share) for field, value in letter.record.items()}
        texts = [field for field, value in letter.record.items() if record[field] is not value]
        letter = letter._replace(
            message_id=carried(letter.message_id, share),
            record=record,
            as_text=tuple(dict.fromkeys([*letter.as_text, *texts])),
            marked=tuple(field for field in letter.marked if field not in texts),
            reason=clip(letter.reason, share),
            exception=clip(letter.exception, share),
            traceback=clip(letter.traceback, share),
        )
        if share <= _SHARE_MIN or size(letter) <= bytes_max:
            return letter
        share //= 2


@dataclass(frozen=True, kw_only=True)
class Retry:
    """How a spout replays failed tuples, and what happens when their attempts are used up.

    `dead_letters` says what happens to a tuple that has failed `attempts` times:

    - False: the topology halts with an error that names the tuple.
    - True: the spout emits it as a DeadLetter on stream "dead_letters", which a bolt must read.
    - A path: the same, and a bolt `<spout>-dead-letters` appends it there as a JSON line.

    A dead letter is tracked like any tuple. If it fails, it is emitted again with the same
    back-off, and after `attempts` failures of its own the topology halts: no tuple is ever dropped.
    Storm: org.apache.storm.kafka.spout.KafkaSpoutRetryExponentialBackoff, where the first
    wait is 0 s by default, and a message at its limit is acked without a report.
    Raises ConfigError for a value out of range.
    """

    attempts: int = 5  #: failures of user code and timeouts count, failures of the runtime do not
    initial_s: float = 0.1  #: the wait after the first failure
    factor: float = 2.0  #: each further wait is longer by this factor
    max_s: float = 10.0  #: the longest wait
    jitter: float = 0.5  #: the fraction of each wait, at its end, that is random
    #: What happens to a tuple that has failed `attempts` times: see above.
    dead_letters: bool | str | PurePath = False
    #: Exception types that mean "a dependency is away" for the bolts of this topology, besides
    #: those of outages.py: they delay a tuple, but are not charged as attempts.
    unavailable: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        check_all(self, _RULES, "Retry: ")
        if self.initial_s > self.max_s:
            raise ConfigError(
                f"Retry: initial_s is {self.initial_s!r} and max_s {self.max_s!r}; the longest "
                "wait must not be shorter than the first"
            )
        kinds = self.unavailable
        if not isinstance(kinds, tuple) or not all(_is_exception(kind) for kind in kinds):
            raise ConfigError(
                f"Retry: unavailable is {kinds!r}; give a tuple of exception types, such as "
                "(requests.ConnectionError,)"
            )

    @property
    def has_dead_letters(self) -> bool:
        """Whether a tuple that has used up its attempts becomes a dead letter."""
        return self.dead_letters is not False

    def wait_s(self, times: int, chance: float = 0.0) -> float:
        """Return the wait after `times` (≥ 1) failures; `chance` from [0, 1) scales the jitter."""
        try:
            longest = min(self.initial_s * self.factor ** (times - 1), self.max_s)
        except OverflowError:
            longest = self.max_s
        return longest * (1 - self.jitter * chance)


_RULES: Mapping[str, Rule] = {
    "attempts": COUNT,
    "initial_s": SECONDS,  # above 0: a dependency that is back must not be flooded
    "factor": Values(float, least=1),
    "max_s": SECONDS,
    "jitter": PROBABILITY,
    "dead_letters": Instance(
        (bool, str, PurePath),
        "False to halt, True for a stream of the spout, or the path of a JSON lines file",
        may_be_empty=False,
    ),
}


def _is_exception(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)


def retry_streams(
    retry: Retry | None, spout: Any, streams: Mapping[str, Any] | None, where: str
) -> Mapping[str, Any]:
    """Return `streams` with the dead-letter stream added, if `retry` needs one.

    Raises TopologyError for a spout that replays by itself, DuplicateComponent for a stream with
    the id of the dead-letter stream.
    """
    streams = streams or {}
    if retry is None:
        return streams
    if not isinstance(retry, Retry):
        raise TopologyError(f"{where}: retry is {retry!r}; give a Retry(attempts=5, …)")
    if not spout.replay:
        raise TopologyError(
            f"{where}: it has replay = False, so its own fail() decides what is emitted again; "
            "drop retry=, or drop replay"
        )
    if not retry.has_dead_letters:
        return streams
    if DEAD_LETTERS in streams:
        raise DuplicateComponent(
            f"{where}, stream {DEAD_LETTERS!r}: that one carries its dead letters; call yours "
            "otherwise"
        )
    return {**streams, DEAD_LETTERS: DeadLetter}
