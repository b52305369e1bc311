"""Emits the records of dead letters again when a client sends them, and reports the results.

A letter is a new message of the spout task, with a number that no record of its source has. It is
emitted, fails, is emitted again, and is acked or becomes a dead letter again like any message; the
user's spout is not called for it. Letters are lost with their process: a client sends its letter
again until it has the answer. Kinds of records that a letter cannot restore are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sunshower.clock import Clock, SystemClock
from sunshower.errors import BadEmit, RequestRefused, user_errors
from sunshower.runtime.tasks.bolts.dead_letters import LetterValues
from sunshower.runtime.tasks.spouts.retry_queue import (
    LETTERS_END,
    LETTERS_FIRST,
    Replay,
    RetryQueue,
)
from sunshower.runtime.tasks.spouts.source import Sender, SpoutSource
from sunshower.runtime.tracking.pending import Pending, Released
from sunshower.texts import message_of
from sunshower.topologies.requests import Reply, Request, RequestProgress, Requests
from sunshower.topologies.retry import ACKED, DEAD_AGAIN, DEAD_LETTERS, DeadLetter

if TYPE_CHECKING:
    from sunshower.runtime.plan import Task
    from sunshower.runtime.tasks.spouts.watermark_sender import WatermarkSender
    from sunshower.runtime.transport.output_streams import OutputStreams

_NEEDED = {*DeadLetter._fields} - {*DeadLetter._field_defaults}  # older clients have no others
Tell = Callable[[Reply | RequestProgress, float], None]


class LetterPayload(NamedTuple):
    """What the pending table keeps of a letter."""

    id: str  # of the client's request
    stream: str
    record: Any
    message_id: Any


@dataclass(slots=True)
class _Sender:
    """A client that waits for the end of its letter."""

    tell: Tell
    ends_s: float


class _LetterHost(Protocol):
    """The spout task, with what replays letters."""

    task: Task
    output_streams: OutputStreams
    is_tracked: bool
    watermarks: WatermarkSender


class LetterReplays(SpoutSource):
    """The letters of one spout task that are not settled: a second source beside the user's."""

    def __init__(self, owner: _LetterHost, pending: Pending, retries: RetryQueue) -> None:
        self.clock: Clock = SystemClock()  # the worker's, once the task is open
        self._owner, self._pending, self._retries = owner, pending, retries
        self.senders: dict[str, _Sender] = {}  # by request; empty: no letter is open
        self._forms: dict[str, LetterValues] = {}  # by stream
        self._number = LETTERS_FIRST
        self.ends = False  # no further letters come

    @property
    def room(self) -> int:
        """How many more letters it takes now."""
        return self._pending.free - len(self._retries)

    def ask(self, request: Request, tell: Tell) -> None:
        """A client sends a letter, perhaps again; `tell` gets how far it is and, at its end, ACKED
        or DEAD_AGAIN; and until when the client waits for it."""
        ends_s = self.clock.now() + request.left_s
        if (known := self.senders.get(request.id)) is not None:
            known.ends_s = ends_s
            tell(RequestProgress.RUNS, ends_s)
            return
        try:
            payload = self._payload(request)
        except RequestRefused as refusal:
            tell(Reply(error=refusal), ends_s)
            return
        if self.room <= 0:  # full; the client sends it again
            tell(RequestProgress.ABSENT, ends_s)
            return
        self.senders[request.id] = _Sender(tell, ends_s)
        self._retries.enqueue_ready(Replay(self._number, payload, 1))
        self._number += 1
        tell(RequestProgress.WAITS, ends_s)

    def completed(self, released: Released) -> Released:
        """Report the letters among complete messages. Returns the others."""
        if released.numbers.min(initial=0) >= LETTERS_END:
            return released
        is_letter: Any = released.numbers < LETTERS_END
        for payload in released.payloads[is_letter]:
            sender = self.senders.pop(payload.id)
            outcome = DEAD_AGAIN if payload.stream == DEAD_LETTERS else ACKED
            sender.tell(Reply([outcome]), sender.ends_s)
        return Released(*(values[~is_letter] for values in released))

    def named(self, released: Released, message_ids: list[Any]) -> list[Any]:
        """The message ids of these trees; `message_ids`: as the user's source has them."""
        for index, number in enumerate(released.numbers.tolist()):
            if number < LETTERS_END:
                message_ids[index] = released.payloads[index].message_id
        return message_ids

    def forget(self) -> None:
        """Drop all letters: the task moves, and clients send them again."""
        self._retries.forget(LETTERS_FIRST, LETTERS_END)
        self.senders.clear()

    # ---- SpoutSource ----------------------------------------------------------------------------

    def send_again(self, replays: Sequence[Replay], now: float, sender: Sender) -> None:
        for number, payload, attempt in replays:
            arguments = ([payload.record], [payload], [number], attempt, now)
            sender.send(payload.stream, *arguments)

    def message_id(self, replay: Replay) -> Any:
        return replay.payload.message_id

    def values(self, replay: Replay) -> dict[str, Any]:
        return self._owner.output_streams.values(replay.payload.stream, replay.payload.record)

    def stream_of(self, replay: Replay) -> str:
        return str(replay.payload.stream)

    def letter_payload(self, replay: Replay, letter: DeadLetter) -> Any:
        return replay.payload._replace(stream=DEAD_LETTERS, record=letter)

    # ---- helpers --------------------------------------------------------------------------------

    def forms(self, stream: str) -> LetterValues | None:
        """How the values of a stream's records are in letters; None: there is no such stream."""
        with suppress(BadEmit):
            return self._forms_of(stream)
        return None

    def _forms_of(self, stream: str) -> LetterValues:
        if stream not in self._forms:
            output = self._owner.output_streams.output_stream(stream)
            self._forms[stream] = LetterValues(output.spec.schema, output.classes)
        return self._forms[stream]

    def _payload(self, request: Request) -> LetterPayload:
        """The message of a letter, given as field → value. Raises RequestRefused."""
        spout, fields = self._owner.task.component, request.value
        if not isinstance(fields, Mapping) or not fields.keys() >= _NEEDED:
            raise RequestRefused(
                f"{spout!r} is a spout, not a stream of requests: it takes only dead letters, from "
                "`sunshower dead replay`"
            )
        if not self._owner.is_tracked:
            raise RequestRefused(f"{spout!r} is not tracked (ackers=0): it cannot replay letters")
        if self._owner.watermarks.stops:
            raise RequestRefused(f"{spout!r} takes no letter any more: its topology ends")
        letter = DeadLetter(**{name: fields[name] for name in DeadLetter._fields if name in fields})
        try:
            record = self._record(letter)
        except user_errors() as error:  # of a default_factory, too
            raise RequestRefused(
                f"the letter of message {letter.message_id!r:.200} of spout {spout!r} cannot be "
                f"emitted again: {message_of(error)}"
            ) from error
        return LetterPayload(request.id, letter.stream, record, letter.message_id)

    def _record(self, letter: DeadLetter) -> Any:
        """The record of a letter, of its stream's type. Raises any exception."""
        streams = self._owner.output_streams
        spec = streams.output_stream(letter.stream).spec
        names = spec.schema.fields
        if spec.direct:
            raise BadEmit(f"stream {letter.stream!r} needs a task to emit to")
        if letter.record.keys() != {*names}:
            raise BadEmit(f"its fields are {[*letter.record]}, those of the stream {[*names]}")
        values = self._forms_of(letter.stream).read(letter)
        (record,) = spec.schema.build([[values[name] for name in names]])
        if streams.check(letter.stream, [record]) is not None:
            raise streams.misfit_error(letter.stream, record)
        return record


def taker_of(spout: Any, letters: LetterReplays) -> Requests | LetterReplays:
    """What takes the requests of the clients of a spout task, whose object is `spout`."""
    return spout if isinstance(spout, Requests) else letters
