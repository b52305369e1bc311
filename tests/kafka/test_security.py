"""Certificates, passwords and access rights on a real broker: settings are passed to librdkafka."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from sunshower import Records, Retry, Topology
from sunshower.clock import SystemClock
from sunshower.dev.security import issue
from sunshower.errors import KafkaError, KafkaUnreachable, NotAuthorised
from sunshower.kafka.options import KafkaOptions
from sunshower.kafka.partitions.broker_metadata import KafkaDirectory
from sunshower.kafka.producing.kafka_bolt import KafkaBolt
from sunshower.kafka.spout import KafkaSpout
from sunshower.runtime.events.health import WaitKind
from sunshower.runtime.inline import run_inline
from sunshower.topologies.components import Context
from tests.kafka.stage import running, topology
from tests.kafka.topics import WITHIN_S, admin, fill, new_topic, read_all
from tests.servers import SecuredKafka

HERE = Context("t", "here", 1, 0, 1)


class Word(NamedTuple):
    word: str


@pytest.fixture
def topic(kafka_secured: SecuredKafka) -> str:
    return new_topic(kafka_secured.kafka.bootstrap)


@pytest.fixture
def in_time() -> Iterator[None]:
    """Fails if the test takes as long as the client alone would wait; Sunshower waits for 8 s."""
    clock = SystemClock()
    before_s = clock.now()
    yield
    assert clock.now() - before_s < 50


Client = Callable[[SecuredKafka], dict[str, Any]]


def by_certificate(secured: SecuredKafka) -> dict[str, Any]:
    where = {"bootstrap.servers": secured.kafka.addresses("TLS")}
    return {**where, **secured.security.by_certificate()}


def by_password(secured: SecuredKafka, user: str = "alice", password: str | None = None) -> Any:
    where = {"bootstrap.servers": secured.kafka.addresses("SASL")}
    return {**where, **secured.security.by_password(user, password)}


either_client = pytest.mark.parametrize("client", [by_certificate, by_password])


@either_client
def test_a_bolt_sends_with_a_certificate_and_with_a_password(
    kafka_secured: SecuredKafka, topic: str, client: Client
) -> None:
    settings = client(kafka_secured)
    program = Topology("t")
    words = program.spout("words", Records([Word("a"), Word("b")], type=Word))
    words.shuffle().bolt("out", KafkaBolt(settings, topic, value="word"))
    assert run_inline(program.graph()).snapshot.component("words").acked == 2
    messages = read_all(settings["bootstrap.servers"], topic, **settings)
    assert [message.value() for message in messages] == [b"a", b"b"]


@either_client
def test_a_spout_reads_with_a_certificate_and_with_a_password(
    kafka_secured: SecuredKafka, topic: str, client: Client
) -> None:
    fill(kafka_secured.kafka.bootstrap, topic, [b"a", b"b"])
    settings = client(kafka_secured) | {"group.id": "carol"}
    spout = KafkaSpout(settings, topics=[topic], options=KafkaOptions(commit_s=0.1))
    with running(topology(spout)) as run:
        run.until(lambda: run.contiguous() == {f"{topic}[0]": 2})
        run.until(lambda: run.spout().result()["commits"])
        assert [record.value for record in run.records()] == [b"a", b"b"]


def prepare_bolt(settings: dict[str, Any], topic: str) -> None:
    KafkaBolt(settings, topic).prepare(HERE)


def open_spout(settings: dict[str, Any], topic: str) -> None:
    KafkaSpout({"group.id": topic} | settings, topics=[topic]).open(HERE)


@pytest.mark.parametrize("start", [prepare_bolt, open_spout])
def test_a_wrong_password_is_an_error(
    kafka_secured: SecuredKafka, topic: str, in_time: None, start: Callable[..., None]
) -> None:
    with pytest.raises(NotAuthorised, match="credential"):
        start(by_password(kafka_secured, "alice", "guessed"), topic)


def test_a_certificate_of_another_authority_is_an_error(
    kafka_secured: SecuredKafka, topic: str, tmp_path: Path, in_time: None
) -> None:
    issue(tmp_path, "client")
    settings = by_certificate(kafka_secured) | kafka_secured.security.by_certificate(tmp_path)
    # The broker may close the connection without an error.
    with pytest.raises(KafkaError, match=r"answer|credential"):
        prepare_bolt(settings, topic)


def test_a_client_without_credentials_fails_because_no_broker_answers(
    kafka_secured: SecuredKafka, topic: str, in_time: None
) -> None:
    with pytest.raises(KafkaUnreachable, match="answer"):
        prepare_bolt({"bootstrap.servers": kafka_secured.kafka.addresses("SASL")}, topic)


def deny(secured: SecuredKafka, kind: ResourceType, name: str) -> dict[str, Any]:
    """Deny the user bob access to a resource, wait until the broker applies that (the controller
    does so earlier), and return bob's settings."""
    place = (kind, name, ResourcePatternType.LITERAL, "User:bob", "*")
    refused = AclBinding(*place, AclOperation.ALL, AclPermissionType.DENY)
    client, clock = admin(secured.kafka.bootstrap), SystemClock()
    for done in client.create_acls([refused]).values():
        done.result(60)
    end_s = clock.now() + WITHIN_S
    in_force = AclBindingFilter(*place, AclOperation.ALL, AclPermissionType.DENY)
    while not client.describe_acls(in_force).result(WITHIN_S):
        assert clock.now() < end_s
        clock.sleep(0.02)
    return by_password(secured, "bob")  # type: ignore[no-any-return]


def test_a_topic_to_which_a_user_has_no_access_is_an_error(
    kafka_secured: SecuredKafka, topic: str, in_time: None
) -> None:
    prepare_bolt(by_password(kafka_secured, "bob"), topic)
    settings = deny(kafka_secured, ResourceType.TOPIC, topic)
    with pytest.raises(NotAuthorised, match=topic):
        KafkaDirectory(settings).partitions(topic)


def test_a_group_to_which_a_user_has_no_access_is_an_error(
    kafka_secured: SecuredKafka, topic: str, in_time: None
) -> None:
    settings = deny(kafka_secured, ResourceType.GROUP, topic)
    with pytest.raises(NotAuthorised, match=f"offsets of group '{topic}'"):
        open_spout(settings, topic)


def allow(secured: SecuredKafka, kind: ResourceType, name: str) -> None:
    """Remove what `deny` has added."""
    place = (kind, name, ResourcePatternType.LITERAL, "User:bob", "*")
    denied = AclBindingFilter(*place, AclOperation.ALL, AclPermissionType.DENY)
    for done in admin(secured.kafka.bootstrap).delete_acls([denied]).values():
        done.result(60)


@pytest.mark.long
def test_a_right_that_is_taken_away_for_a_while_charges_no_record(
    kafka_secured: SecuredKafka, topic: str
) -> None:
    is_denied, is_allowed = threading.Event(), threading.Event()

    def read() -> Iterator[Word | None]:
        for number in range(60):
            while (number == 30 and not is_denied.is_set()) or (
                number == 40 and not is_allowed.is_set()
            ):
                yield None
            yield Word(f"{number}")

    program = Topology("t", workers=1, message_timeout_s=300)
    # One attempt: a single one that is charged would end the topology.
    words = program.spout("words", Records(read, type=Word), retry=Retry(attempts=1))
    settings = by_password(kafka_secured, "bob")
    words.shuffle().bolt("out", KafkaBolt(settings, topic, value="word"))
    with running(program) as run:
        run.until(lambda: len(read_all(kafka_secured.kafka.bootstrap, topic)) == 30)
        deny(kafka_secured, ResourceType.TOPIC, topic)
        is_denied.set()
        run.until_waiting(WaitKind.UNAVAILABLE)
        allow(kafka_secured, ResourceType.TOPIC, topic)
        is_allowed.set()
        run.until(lambda: run.core.finished)
    messages = read_all(kafka_secured.kafka.bootstrap, topic)
    assert {message.value() for message in messages} == {
        f"{number}".encode() for number in range(60)
    }
