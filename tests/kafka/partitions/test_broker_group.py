"""What a member of a brokers' group subscribes to, with a fake client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError as ClientError

from sunshower.clock import ManualClock
from sunshower.errors import KafkaError, KafkaUnreachable
from sunshower.kafka.consuming.subscription import TopicSubscription
from sunshower.kafka.options import BrokerGroup
from tests.kafka.groups import Topics, reader_context


class Client:
    """A consumer and its client in one; records the subscriptions."""

    group, instance = "g", "shop-0"
    rebalances_eagerly, in_new_protocol = True, False
    max_poll_s = 300.0

    memberid: Callable[[], str | None]
    assigned: Callable[..., None]
    revoked: Callable[..., None]

    def __init__(self) -> None:
        self.client = self
        self.fatal: Any = None
        self.renewed = 0
        self.subscriptions: list[list[str]] = []
        self.calls: dict[str, Callable[..., None]] = {}

    def subscribe(self, topics: list[str], **calls: Callable[..., None]) -> None:
        self.subscriptions.append(topics)
        self.calls = calls

    def unsubscribe(self) -> None:
        self.subscriptions.append([])

    def renew(self) -> None:
        self.fatal = None
        self.renewed += 1


def member(client: Any, subscription: TopicSubscription, topics: Topics, clock: ManualClock) -> Any:
    group = BrokerGroup(reader_context(subscription, topics, clock, consumer=client))
    return lambda: group.look(client)


def test_a_pattern_is_a_python_regex_and_new_matching_topics_are_subscribed_to() -> None:
    client, clock = Client(), ManualClock()
    topics = Topics(orders_1=1, orders_x=1, more_orders_2=1)
    look = member(client, TopicSubscription(pattern=r"orders_\d+"), topics, clock)
    look()
    topics.counts |= {"orders_2": 1, "other": 1}
    look()
    assert client.subscriptions == [["orders_1"]], "it is not time to refresh yet"
    clock.advance(10.0)
    look()
    clock.advance(10.0)
    look()
    # The last look has found no new topic, so it has not subscribed again.
    assert client.subscriptions == [["orders_1"], ["orders_1", "orders_2"]]
    topics.counts = {}
    clock.advance(10.0)
    look()
    assert client.subscriptions[-1] == []
    topics.counts = {"orders_3": 1}
    clock.advance(10.0)
    look()
    assert client.subscriptions[-1] == ["orders_3"]


def test_the_topics_of_a_pattern_without_a_match_are_not_listed_at_every_look() -> None:
    client, clock, asked = Client(), ManualClock(), list[int]()

    class Counted(Topics):
        def topics(self) -> frozenset[str]:
            asked.append(1)
            return super().topics()

    look = member(client, TopicSubscription(pattern="o.*"), Counted(a=1), clock)
    for _ in range(5):
        look()
    assert (client.subscriptions, len(asked)) == ([], 1)


def fatal(code: int) -> ClientError:
    """A fatal error as the client returns it: the code of the broker is in the text only."""
    return ClientError(ClientError._FATAL, f"Fatal error: {ClientError(code).str()}: …")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ClientError.FENCED_INSTANCE_ID, r"'shop-0'.* an id of its own"),
        (ClientError.UNSUPPORTED_VERSION, r"'g' does not take this member.* Kafka 4\.0 or newer"),
        (ClientError.UNSUPPORTED_ASSIGNOR, 'does not take this member.* is "uniform" or "range"'),
    ],
)
def test_a_member_that_the_group_has_ended_raises_until_it_is_stopped(
    code: int, expected: str
) -> None:
    client, clock = Client(), ManualClock()
    client.in_new_protocol = True
    look = member(client, TopicSubscription(topics=("a",)), Topics(), clock)
    look()
    client.fatal = fatal(code)
    for _ in range(2):
        clock.advance(100.0)
        with pytest.raises(KafkaError, match=expected) as caught:
            look()
        assert not isinstance(caught.value, KafkaUnreachable)
    assert not client.renewed


def test_a_member_waits_for_another_one_of_its_name_and_joins_with_a_new_client() -> None:
    client, clock = Client(), ManualClock()
    look = member(client, TopicSubscription(topics=("a",)), Topics(), clock)
    look()
    for renewed in (1, 2):
        client.fatal = fatal(ClientError.UNRELEASED_INSTANCE_ID)
        with pytest.raises(KafkaUnreachable, match="at the end of its session"):
            look()
        assert client.renewed == renewed
        look()
        assert client.subscriptions == [["a"]] * (renewed + 1)
        client.fatal = fatal(ClientError.UNRELEASED_INSTANCE_ID)
        with pytest.raises(KafkaUnreachable):
            look()
        assert client.renewed == renewed, "not at every look"
        clock.advance(10.0)


@pytest.mark.parametrize("in_new_protocol", [False, True])
def test_a_member_without_partitions_knows_it_also_if_no_call_says_so(
    in_new_protocol: bool,
) -> None:
    client, clock = Client(), ManualClock()
    client.in_new_protocol = in_new_protocol
    client.revoked = lambda _, **__: None
    client.memberid = lambda: "m-1"
    read = TopicSubscription(topics=("a",))
    group = BrokerGroup(reader_context(read, Topics(), clock, consumer=client))
    owner: Any = client
    group.look(owner)
    for _ in range(2):
        clock.advance(14.0)
        assert not group.is_settled
        clock.advance(1.0)
        assert group.is_settled == in_new_protocol
        client.calls["on_revoke"](client, [])


@pytest.mark.parametrize(
    ("in_new_protocol", "is_idle"), [(True, True), (True, False), (False, True)]
)
def test_a_member_of_the_new_protocol_without_partitions_says_why_once(
    caplog: pytest.LogCaptureFixture, in_new_protocol: bool, is_idle: bool
) -> None:
    client, clock = Client(), ManualClock()
    client.in_new_protocol = in_new_protocol
    client.assigned = lambda _: None
    look = member(client, TopicSubscription(topics=("a",)), Topics(), clock)
    look()
    if not is_idle:
        client.calls["on_assign"](client, [])
    for _ in range(3):
        clock.advance(29.0)
        look()
    warned = [r for r in caplog.records if "older than Kafka 4.0" in r.getMessage()]
    assert len(warned) == (in_new_protocol and is_idle)


def test_topic_names_are_subscribed_to_once_and_no_topics_are_listed() -> None:
    client, clock = Client(), ManualClock()
    look = member(client, TopicSubscription(topics=("b", "a")), Topics(), clock)
    for _ in range(3):
        look()
        clock.advance(100.0)
    assert client.subscriptions == [["a", "b"]]


@pytest.mark.parametrize(
    ("member_id", "silent_s", "lost"),
    [("m-1", 299.0, False), ("", 1.0, True), (None, 1.0, True), ("m-1", 300.0, True)],
)
def test_partitions_are_lost_to_a_member_that_the_group_has_expelled(
    member_id: str | None, silent_s: float, lost: bool
) -> None:
    client, revoked, clock = Client(), list[bool](), ManualClock()
    client.memberid = lambda: member_id
    client.revoked = lambda _, *, lost: revoked.append(lost)
    look = member(client, TopicSubscription(topics=("a",)), Topics(), clock)
    look()
    clock.advance(silent_s)
    look()
    client.calls["on_revoke"](client, [])
    client.calls["on_lost"](client, [])
    assert revoked == [lost, True]
