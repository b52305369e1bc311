"""Wrong Kafka settings and options raise when they are declared, or within ten seconds."""

from __future__ import annotations

import sys
import time
from typing import Any, NamedTuple

import pytest

from sunshower import Retry
from sunshower.dev.kafka import Kafka
from sunshower.errors import ConfigError, KafkaError, Unavailable, UnknownTopic
from sunshower.installed import install_command
from sunshower.kafka.consuming.start_position import StartPosition
from sunshower.kafka.exactly_once.batch_spouts import BatchOptions, KafkaOpaque
from sunshower.kafka.formats import Avro, Json
from sunshower.kafka.options import KafkaOptions, by_broker_group, by_index
from sunshower.kafka.partitions.ports import Partition
from sunshower.kafka.spout import KafkaSpout
from sunshower.kafka.zookeeper.options import ByZooKeeperGroup
from sunshower.topologies.components import Context
from tests.kafka.topics import new_topic

BASE = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
WITHIN_S = 40.0
HERE = Context("t", "in", 1, 0, 1)


class Sale(NamedTuple):
    item: str


def error_of_open(settings: dict[str, Any], **more: Any) -> KafkaError:
    """The error that `open` raises, before a request of the client itself would end."""
    spout = KafkaSpout(settings, **more)
    begun_s = time.monotonic()
    with pytest.raises((KafkaError, ConfigError)) as caught:
        spout.open(HERE)
    assert time.monotonic() - begun_s < WITHIN_S
    return caught.value


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "a subscription to nothing"),
        ({"topics": ["a"], "pattern": "b"}, "topics and pattern: give exactly one"),
        ({"pattern": "b", "partitions": [Partition("a", 0)]}, "pattern and partitions"),
        ({"topics": "a"}, r"give a list: \['a'\]"),
        ({"pattern": "a["}, r"pattern 'a\[' does not compile: unterminated character set"),
    ],
)
def test_a_subscription_is_either_names_or_a_pattern_or_partitions(
    given: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected):
        KafkaSpout(BASE, **given)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"group.id": "g"}, "lack 'bootstrap.servers'"),
        ({"bootstrap.servers": "a:1"}, "lack 'group.id'"),
        ({**BASE, "enable.auto.commit": True}, "enable.auto.commit is not to be set here"),
        ({**BASE, "auto.offset.reset": "latest"}, "say where to begin with first="),
    ],
)
def test_settings_that_contradict_the_spout_are_refused(
    settings: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected):
        KafkaSpout(settings, topics=["a"])


NEW = {**BASE, "group.protocol": "consumer"}


@pytest.mark.parametrize(
    ("sharing", "settings", "expected"),
    [
        (by_broker_group, {}, ""),
        (by_index, {}, r"sharing=by_broker_group\); or leave group.protocol out"),
        (ByZooKeeperGroup("zk:2181", "g"), {}, "or leave group.protocol out.*ByZooKeeperGroup"),
        (by_broker_group, {"session.timeout.ms": 9000}, "group.consumer.session.timeout.ms"),
        (by_broker_group, {"heartbeat.interval.ms": 9}, "group.consumer.heartbeat.interval.ms"),
        (
            by_broker_group,
            {"partition.assignment.strategy": "range"},
            'choose their rule with "group.remote.assignor": "uniform" or "range"',
        ),
    ],
)
def test_the_new_group_protocol_is_refused_where_the_brokers_do_not_assign(
    sharing: Any, settings: dict[str, Any], expected: str
) -> None:
    def declare() -> KafkaSpout:
        options = KafkaOptions(sharing=sharing)
        return KafkaSpout({**NEW, **settings}, topics=["a"], options=options)

    if not expected:
        declare()
        return
    with pytest.raises(ConfigError, match=expected):
        declare()


def test_batches_read_without_a_group_and_refuse_its_new_protocol() -> None:
    with pytest.raises(ConfigError, match=r"leave group.protocol out.* no batches"):
        KafkaOpaque(NEW, topics=["a"])


@pytest.mark.parametrize("fields", [("colour",), "value"])
def test_fields_that_no_message_has_are_refused(fields: Any) -> None:
    with pytest.raises(ConfigError, match="a message has topic, partition, offset"):
        KafkaSpout(BASE, topics=["a"], fields=fields)


@pytest.mark.parametrize("wrong", [{"value": Json}, {"key": Sale}, {"value": "json"}])
def test_a_value_that_is_no_format_is_refused(wrong: dict[str, Any]) -> None:
    part, decoder = next(iter(wrong.items()))
    shown = getattr(decoder, "__name__", "'json'")
    with pytest.raises(
        ConfigError, match=rf"{part}={shown} is not a format; give one such as {part}="
    ):
        KafkaSpout(BASE, topics=["a"], **wrong)


def test_a_missing_client_package_is_no_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    error = error_of_open(BASE, topics=["a"])
    assert install_command("kafka") in str(error)
    assert not isinstance(error, Unavailable)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"commit_s": 0}, {"uncommitted_max": 0}, {"behind_max": -1}, {"behind_max": "9"}),
        *({"guarantee": "at least once"}, {"first": "earliest"}, {"first": StartPosition}),
        *({"interceptor": print}, {"listener": print}),
        *({"refetch": 1}, {"directory": "zk:2181"}, {"sharing": None}, {"store": "counts.db"}),
    ],
    ids=str,
)
def test_invalid_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"KafkaOptions: {next(iter(wrong))} is"):
        KafkaOptions(**wrong)


def test_the_error_for_an_option_of_the_wrong_type_names_the_right_one() -> None:
    """A string was taken for Guarantee.NONE, so failed messages were not emitted again."""
    with pytest.raises(ConfigError, match=r"'at least once'; give Guarantee\.AT_LEAST_ONCE"):
        KafkaOptions(guarantee="at least once")  # type: ignore[arg-type]
    with pytest.raises(
        ConfigError, match=r"'earliest'; give one of StartPosition, such as StartPosition\.EARLIEST"
    ):
        BatchOptions(first="earliest")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"options is \{'first'.*; give KafkaOptions\("):
        KafkaSpout(BASE, topics=["a"], options={"first": "earliest"})  # type: ignore[arg-type]


def test_dead_letters_need_a_spout_that_replays() -> None:
    from sunshower import Topology
    from sunshower.errors import TopologyError
    from sunshower.kafka.options import Guarantee

    spout = KafkaSpout(BASE, topics=["a"], options=KafkaOptions(guarantee=Guarantee.AT_MOST_ONCE))
    with pytest.raises(TopologyError, match="replay = False"):
        Topology("t").spout("in", spout, retry=Retry(dead_letters=True))


def test_a_setting_that_the_client_does_not_know_is_an_error(kafka: Kafka) -> None:
    settings = {**BASE, "bootstrap.servers": kafka.bootstrap, "fetch.wait": 3}
    error = error_of_open(settings, topics=["a"])
    wrong = 'No such configuration property: "fetch.wait"'
    assert str(error).endswith(f"invalid Kafka client settings: {wrong}")


def test_avro_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", None)
    error = error_of_open(BASE, topics=["a"], value=Avro({"url": "http://127.0.0.1:1"}))
    assert "pip install 'confluent-kafka[avro,schemaregistry]'" in str(error)


def test_a_topic_that_does_not_exist_is_an_error(kafka: Kafka) -> None:
    error = error_of_open({**BASE, "bootstrap.servers": kafka.bootstrap}, topics=["no-such-topic"])
    assert isinstance(error, UnknownTopic)
    assert "topic 'no-such-topic'" in str(error)


def test_a_partition_that_does_not_exist_is_an_error(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap, 2)
    settings = {**BASE, "bootstrap.servers": kafka.bootstrap}
    error = error_of_open(settings, partitions=[Partition(topic, 1), Partition(topic, 2)])
    assert isinstance(error, UnknownTopic)
    assert f"no partition {topic}[2]; topic '{topic}' has 2" in str(error)


def test_a_group_cannot_share_single_partitions(kafka: Kafka) -> None:
    topic = new_topic(kafka.bootstrap)
    settings = {**BASE, "bootstrap.servers": kafka.bootstrap}
    options = KafkaOptions(sharing=by_broker_group)
    error = error_of_open(settings, partitions=[Partition(topic, 0)], options=options)
    assert "a group shares whole topics" in str(error)
