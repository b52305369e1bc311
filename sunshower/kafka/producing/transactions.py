"""Kafka transactions: consumers with read_committed get all messages of a transaction or none."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Unpack

from sunshower.arguments import NAME
from sunshower.errors import KafkaError, KafkaUnreachable, StaleGeneration, Unavailable
from sunshower.kafka.producing.kafka_bolt import SendingBolt
from sunshower.kafka.producing.producer import Message, MessageParts, Producer, Settings
from sunshower.topologies.components import Collector, Context, Tuple

_WITHIN_S = 8.0  # less than the minute after which brokers abort a transaction
_APART_S = 8.0  # time to find the records of a batch that cannot be sent; then the rest fails
_FENCED = {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}


class Transactions(Producer):
    """A producer whose messages become visible with `commit`.

    A new producer of the same `id` aborts the transaction its predecessor left open, and fences
    the predecessor. If `fatal` is set, the outcome of the last commit may be unknown, and only a
    new producer of the same id can continue.
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
        """Send a message in the transaction. Waits while the queue is full.

        Raises KafkaError for messages that can never be sent, and if the brokers do not answer.
        """
        until_s = time.monotonic() + _WITHIN_S
        while not self.send(message):
            self.poll(0.1)
            if time.monotonic() > until_s:
                raise KafkaUnreachable(
                    f"the Kafka at {self.address} has taken no message for {_WITHIN_S:g} s"
                )

    def commit(self) -> None:
        """Commit; readers see the messages soon after this returns, once the brokers have written
        the markers of the transaction. If it raises, readers never see them, unless `fatal`
        is set. Raises StaleGeneration, KafkaError."""
        self._do("committing", lambda: self._client.commit_transaction(_WITHIN_S))

    def abort(self) -> None:
        """Abort the transaction. Raises StaleGeneration, KafkaError."""
        self._do("aborting", lambda: self._client.abort_transaction(_WITHIN_S))

    def _do(self, what: str, call: Callable[[], None]) -> None:
        try:
            call()
        except self._refusals as error:
            refusal = error.args[0]
            ours = self._ours(refusal, what)
            if isinstance(ours, Unavailable):
                self.fatal = ours  # the next producer of this id aborts the transaction
            elif refusal.txn_requires_abort() and what != "aborting":
                self.abort()
            else:
                self.fatal = ours
            raise ours from error

    def _ours(self, refusal: Any, what: str) -> KafkaError:
        if refusal.name() in _FENCED:
            return StaleGeneration(
                f"{what} a transaction of {self.id!r}: another process has that id now, or it was "
                f"open for too long ({refusal.str()})"
            )
        return self.ours(refusal, f"{what} a transaction of {self.id!r}")


class TransactionalKafkaBolt(SendingBolt):
    """A KafkaBolt that writes each batch of records in a transaction, and acks it after the commit.

    `transactional_id` and the task's index form the id of the producer, also after a restart: use
    another one for each bolt that writes to a Kafka. Of a refused batch each message is sent in a
    request of its own, then the halves of the batch, and so on: a record that cannot be sent fails
    alone. Records not sent after 8 s of this, or without an answer of a broker, fail with the cause
    `unavailable`, and are emitted again.
    """

    def __init__(
        self,
        settings: Settings,
        topic: str | Callable[[Any], str],
        *,
        transactional_id: str,
        **message: Unpack[MessageParts],
    ) -> None:
        NAME.check("transactional_id", transactional_id)
        super().__init__(settings, topic, **message)
        self.transactional_id = transactional_id

    def prepare(self, context: Context) -> None:
        self._collector: Collector[Any]  # the same object in each call
        self._batch: list[tuple[Tuple[Any], Message]] = []
        self._id = f"{self.transactional_id}-{context.index}"
        self._producer, self._failed = Transactions(self.settings, self._id), False
        self._is_there = True
        self._alone = False  # each message is sent in a request of its own
        if isinstance(self.topic, str):
            self._producer.check_topic(self.topic)

    def execute(self, tuple: Tuple[Any], out: Collector[Any]) -> None:
        """Add the record to the batch. Raises KafkaUnreachable if no producer can be created."""
        self._collector = out
        if self._failed:
            self._renew()
        self._batch.append((tuple, self._composer.compose(tuple.record)))

    def flush(self) -> None:
        batch, self._batch = self._batch, []
        if not batch:
            return
        parts, until_s = [batch], time.monotonic() + _APART_S
        while parts:
            part = parts.pop()
            error = self._send(part)
            if error is None:
                self._settle(part, None)
            elif self._is_hopeless(error):
                self._settle(sum(parts, part), error)
                return
            elif len(part) == 1:
                self._settle(part, error)
                self._alone = False  # it was this record, and not the size of the batch
            elif time.monotonic() > until_s:
                late = f"not sent in {_APART_S:g} s: other records are refused ({error})"
                self._settle(sum(parts, part), KafkaUnreachable(late))
                return
            elif not self._alone:
                self._alone = True
                parts.append(part)
            else:
                half = len(part) // 2
                parts += [part[half:], part[:half]]

    def _send(self, batch: list[tuple[Tuple[Any], Message]]) -> KafkaError | None:
        """Send messages in one transaction. Returns the error if it was not committed."""
        try:
            self._renew()
            self._producer.begin()
            try:
                for _, message in batch:
                    self._producer.produce(message)
            except Unavailable:
                raise  # the next producer of this id aborts the transaction
            except KafkaError:
                self._producer.abort()
                raise
            self._producer.commit()
        except KafkaError as error:
            self._failed = True
            return error
        return None

    def _renew(self) -> None:
        """Create a new producer after a failure: the client would carry the sequence numbers of
        failed messages into the next transaction. If it raises KafkaError there is no producer.
        While all brokers are down the old one is kept, as its `check` raises without waiting."""
        if self._failed:
            if self._is_there:
                self._producer.poll(0.0)
                self._producer.check()
            self._producer.let_go()
            self._is_there = False
            single = {"batch.num.messages": 1} if self._alone else {}
            self._producer = Transactions({**self.settings, **single}, self._id)
            self._failed, self._is_there = False, True

    def _is_hopeless(self, error: KafkaError) -> bool:
        """Whether the error does not depend on the records, so that no other part can succeed."""
        return (
            not self._is_there or self._producer.fatal is not None or isinstance(error, Unavailable)
        )

    def _settle(self, batch: list[tuple[Tuple[Any], Message]], error: KafkaError | None) -> None:
        for one, _ in batch:
            self._finish(self._collector, one, error)
