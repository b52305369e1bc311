"""Messages in transactions: those who read committed messages see all of one, or nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from sunshower.arguments import TEXT
from sunshower.errors import KafkaError, KafkaUnreachable, StaleGeneration, Unavailable
from sunshower.kafka.messages import Composer, Headers, Message, Part
from sunshower.kafka.producing import Producer, Settings, checked
from sunshower.records import Schema
from sunshower.topologies.components import Bolt, Collector, Context, Tuple

_WITHIN_S = 8.0  # less than the minute after which brokers abort a transaction by themselves
_APART_S = 8.0  # for finding out which records of a batch cannot go; then all the others fail
_FENCED = {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}


class Transactions(Producer):
    """A producer whose messages count from `commit` on.

    There is one of an `id` at a time: the next one of that id ends the transaction that the former
    one has left open, and shuts it out. When `fatal` is set, whether the last transaction was
    committed may be unknown, and only a new one of the same id can go on.
    """

    def __init__(self, settings: Settings, id: str) -> None:
        super().__init__({**settings, "transactional.id": id})
        self.id = id
        self._client.poll(0)
        self._do("starting", lambda: self._client.init_transactions(_WITHIN_S))

    def begin(self) -> None:
        """Begin a transaction. Raises StaleGeneration, KafkaError."""
        self._do("beginning", self._client.begin_transaction)

    def produce(self, message: Message) -> None:
        """Send a message as part of it. Waits while the queue is full.

        Raises KafkaError for what can never go, and for brokers that do not answer.
        """
        until_s = time.monotonic() + _WITHIN_S
        while not self.send(message):
            self.poll(0.1)
            if time.monotonic() > until_s:
                raise KafkaUnreachable(
                    f"the Kafka at {self.address} has taken no message for {_WITHIN_S:g} s"
                )

    def commit(self) -> None:
        """Make it count; it does when this returns. If it raises, it never will, unless `fatal` is
        set. Raises StaleGeneration, KafkaError."""
        self._do("committing", lambda: self._client.commit_transaction(_WITHIN_S))

    def abort(self) -> None:
        """Take all of it back. Raises StaleGeneration, KafkaError."""
        self._do("aborting", lambda: self._client.abort_transaction(_WITHIN_S))

    def _do(self, what: str, call: Callable[[], None]) -> None:
        try:
            call()
        except self._refusals as error:
            refusal = error.args[0]
            ours = self._ours(refusal, what)
            if isinstance(ours, Unavailable):
                self.fatal = ours  # the next one of this id aborts it
            elif refusal.txn_requires_abort() and what != "aborting":
                self.abort()
            else:
                self.fatal = ours
            raise ours from error

    def _ours(self, refusal: Any, what: str) -> KafkaError:
        if refusal.name() in _FENCED:
            return StaleGeneration(
                f"{what} a transaction of {self.id!r}: somebody else has that id by now, or it was "
                f"open for too long ({refusal.str()})"
            )
        return self.ours(refusal, f"{what} a transaction of {self.id!r}")


class TransactionalKafkaBolt(Bolt[Any, None]):
    """As KafkaBolt, each batch of records in a transaction of its own, acked when it is committed.

    `transactional_id` and the task's index make the id under which its producer is known, also to
    its next life: give each bolt that writes to a Kafka another one. Where a batch is refused, its
    halves are sent, and so on: a record that cannot go fails alone, after a few transactions.
    What has not been sent after 8 s of that fails too, and is emitted again. Where no broker
    answers, the batch fails with the cause `unavailable`, and the task waits.
    """

    def __init__(
        self,
        settings: Settings,
        topic: str | Callable[[Any], str],
        *,
        transactional_id: str,
        value: Part = None,
        key: Part = None,
        headers: Headers | Callable[[Any], Headers] | None = None,
        partition: Callable[[Any], int] | None = None,
    ) -> None:
        TEXT.check("transactional_id", transactional_id)
        self.settings, self.topic = checked(settings), topic
        self.transactional_id = transactional_id
        self._composer = Composer(topic, value, key, headers, partition)

    def check_input(self, schema: Schema) -> None:
        """Refuse records without the fields that are to be sent."""
        self._composer.check(schema, f"TransactionalKafkaBolt({self.transactional_id})")

    def prepare(self, context: Context) -> None:
        """Find the brokers, and end what a former life has left open."""
        self._hands: Collector[Any]  # the same one in each call
        self._batch: list[tuple[Tuple[Any], Message]] = []
        self._id = f"{self.transactional_id}-{context.index}"
        self._producer, self._failed = Transactions(self.settings, self._id), False
        self._is_there = True
        if isinstance(self.topic, str):
            self._producer.check_topic(self.topic)

    def execute(self, tuple: Tuple[Any], out: Collector[Any]) -> None:
        """Take it into the batch. Raises KafkaUnreachable while no new producer can be made."""
        self._hands = out
        if self._failed:
            self._renew()
        self._batch.append((tuple, self._composer.compose(tuple.record)))

    def flush(self) -> None:
        """Send the batch, commit it, and settle its records."""
        batch, self._batch = self._batch, []
        if not batch:
            return
        parts, until_s = [batch], time.monotonic() + _APART_S
        while parts:
            part = parts.pop()
            error = self._send(part)
            if error is None or (len(part) == 1 and not self._is_hopeless(error)):
                self._settle(part, error)
            elif self._is_hopeless(error) or time.monotonic() > until_s:
                for one in (part, *parts):
                    self._settle(one, error)
                return
            else:
                half = len(part) // 2
                parts += [part[half:], part[:half]]

    def snapshot(self) -> None:
        """Nothing: after each flush all is committed."""

    def restore(self, state: Any) -> None:
        """Nothing, likewise."""

    def _send(self, batch: list[tuple[Tuple[Any], Message]]) -> KafkaError | None:
        """Send messages in one transaction; what was the matter, if they do not count."""
        try:
            self._renew()
            self._producer.begin()
            try:
                for _, message in batch:
                    self._producer.produce(message)
            except Unavailable:
                raise  # the next producer of this id aborts it
            except KafkaError:
                self._producer.abort()
                raise
            self._producer.commit()
        except KafkaError as error:
            self._failed = True
            return error
        return None

    def _renew(self) -> None:
        """Another producer after a failure: the client carries the numbers of what failed into what
        comes next. Raises KafkaError; there is none then. While all brokers are away the old one
        stays, which says so without a wait."""
        if self._failed:
            if self._is_there:
                self._producer.poll(0.0)
                self._producer.check()
            self._producer.let_go()
            self._is_there = False
            self._producer = Transactions(self.settings, self._id)
            self._failed, self._is_there = False, True

    def _is_hopeless(self, error: KafkaError) -> bool:
        """Whether that is not for a record's sake: others would not fare better."""
        return (
            not self._is_there or self._producer.fatal is not None or isinstance(error, Unavailable)
        )

    def _settle(self, batch: list[tuple[Tuple[Any], Message]], error: KafkaError | None) -> None:
        for one, _ in batch:
            if error is None:
                self._hands.ack(one)
            else:
                self._hands.fail(one, error)
