"""A spout reads with certificates and passwords; a wrong one, or no right, is told at once."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from sunshower.clock import SystemClock
from sunshower.errors import NotAuthorised
from sunshower.kafka.options import KafkaOptions
from sunshower.kafka.spout import KafkaSpout
from sunshower.topologies.components import Context
from tests.kafka.stage import running, topology
from tests.kafka.topics import admin, fill, new_topic
from tests.servers import SecuredKafka


def by_certificate(secured: SecuredKafka) -> dict[str, Any]:
    where = {"bootstrap.servers": secured.kafka.addresses("TLS"), "group.id": "carol"}
    return {**where, **secured.security.by_certificate()}


def by_password(
    secured: SecuredKafka, user: str = "alice", password: str | None = None
) -> dict[str, Any]:
    where = {"bootstrap.servers": secured.kafka.addresses("SASL"), "group.id": "carol"}
    return {**where, **secured.security.by_password(user, password)}


@pytest.mark.parametrize("client", [by_certificate, by_password])
def test_a_spout_reads_with_a_certificate_and_with_a_password(
    kafka_secured: SecuredKafka, client: Any
) -> None:
    topic = new_topic(kafka_secured.kafka.bootstrap)
    fill(kafka_secured.kafka.bootstrap, topic, [b"a", b"b"])
    spout = KafkaSpout(client(kafka_secured), topics=[topic], options=KafkaOptions(commit_s=0.1))
    with running(topology(spout)) as run:
        run.until(lambda: run.contiguous() == {f"{topic}[0]": 2})
        run.until(lambda: run.spout().result()["commits"])
        assert [record.value for record in run.records()] == [b"a", b"b"]


def refused(settings: dict[str, Any], topic: str, said: str) -> None:
    """The spout does not open, and says why within ten seconds."""
    clock = SystemClock()
    begun_s = clock.now()
    with pytest.raises(NotAuthorised, match=said):
        KafkaSpout(settings, topics=[topic]).open(Context("t", "in", 1, 0, 1))
    assert clock.now() - begun_s < 10


def test_a_wrong_password_is_an_error(kafka_secured: SecuredKafka) -> None:
    topic = new_topic(kafka_secured.kafka.bootstrap)
    refused(by_password(kafka_secured, "alice", "guessed"), topic, "credential")


def test_a_group_that_a_user_may_not_have_is_an_error(kafka_secured: SecuredKafka) -> None:
    topic, client = (
        new_topic(kafka_secured.kafka.bootstrap),
        admin(kafka_secured.kafka.bootstrap),
    )
    settings = by_password(kafka_secured, "bob") | {"group.id": topic}
    place = (ResourceType.GROUP, topic, ResourcePatternType.LITERAL, "User:bob", "*")
    denied = AclBinding(*place, AclOperation.ALL, AclPermissionType.DENY)
    for done in client.create_acls([denied]).values():
        done.result(60)
    refused(settings, topic, f"offsets of group '{topic}'")
