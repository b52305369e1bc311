"""A Secret is never shown, and addresses and settings are shown without the secrets in them."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunshower.errors import ConfigError, KafkaError, StoreError
from sunshower.kafka.formats import Avro
from sunshower.kafka.partitions.broker_metadata import new_client
from sunshower.kafka.producing.kafka_bolt import KafkaBolt
from sunshower.kafka.spout import KafkaSpout
from sunshower.kafka.zookeeper.options import PlainOffsets
from sunshower.secret import HIDDEN, Secret, address, is_secret, protected, shown, without_secrets
from sunshower.spark_integration.sessions.local_spark import LocalSpark
from sunshower.spark_integration.tables.kafka_rows import KafkaRows
from sunshower.state import (
    PostgresState,
    RedisState,
    ZooKeeperState,
    postgres_backing,
    redis_backing,
)
from sunshower.trident import InZooKeeper

WORD = "hunter2-planted"


@dataclass
class Holder:
    word: Any


@pytest.mark.parametrize(
    "show",
    [
        repr,
        str,
        "{}".format,
        "{!r:>40}".format,
        lambda secret: f"{secret:*^30}",
        lambda secret: "%s %r" % (secret, secret),  # noqa: UP031
        lambda secret: json.dumps([secret], default=repr),
        lambda secret: repr(Holder({"a": [secret]})),
        lambda secret: str(asdict(Holder(secret))),
        lambda secret: str(ConfigError(secret)),
        lambda secret: logging.makeLogRecord({"msg": "%s", "args": (secret,)}).getMessage(),
        lambda secret: str(copy.deepcopy(secret)),
        lambda secret: str(pickle.loads(pickle.dumps(secret))),
    ],
)
def test_a_secret_is_never_shown(show: Any) -> None:
    text = show(Secret(WORD))
    assert WORD not in text
    assert HIDDEN in text or "\\u2022" in text


def test_a_secret_is_not_a_string_that_a_program_could_show_by_mistake() -> None:
    with pytest.raises(TypeError):
        json.dumps(Secret(WORD))
    with pytest.raises(TypeError):
        "".join([Secret(WORD)])  # type: ignore[list-item]
    assert not hasattr(Secret(WORD), "__dict__")


def test_a_secret_can_be_compared_hashed_and_pickled() -> None:
    secret = Secret(WORD)
    assert pickle.loads(pickle.dumps(secret)) == secret == Secret(WORD) != Secret("other-planted")
    assert len({secret, Secret(WORD)}) == 1
    assert secret.reveal() == WORD


def test_a_secret_can_be_read_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "word"
    file.write_text(WORD + "\n")
    assert Secret.from_file(file).reveal() == WORD
    monkeypatch.setenv("WORD", WORD)
    assert Secret.from_environment("WORD").reveal() == WORD
    with pytest.raises(ConfigError, match="no environment variable MISSING"):
        Secret.from_environment("MISSING")
    file.write_bytes(b"\xff")
    for path in (file, tmp_path / "missing", tmp_path):
        with pytest.raises(ConfigError, match=f"{path} cannot be read"):
            Secret.from_file(path)
    with pytest.raises(ConfigError, match="text is a bytes; give a text"):
        Secret(WORD.encode())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"redis://user:{WORD}@host:6379/0", f"redis://user:{HIDDEN}@host:6379/0"),
        (f"redis://:{WORD}@host/0", f"redis://:{HIDDEN}@host/0"),
        ("redis://host:6379/0", "redis://host:6379/0"),
        (f"rediss://host/0?password={WORD}", f"rediss://host/0?{HIDDEN}"),
        (f"redis://user:p/{WORD}@host/0", f"redis://{HIDDEN}"),
        (f"redis:/user:{WORD}@host/0", HIDDEN),
        (f"unix://:{WORD}@/run/redis.sock", f"unix://:{HIDDEN}@/run/redis.sock"),
        (f"postgresql://me:{WORD}@a,b:5432/db", f"postgresql://me:{HIDDEN}@a,b:5432/db"),
        (f"postgresql://me:@{WORD}@host/db", f"postgresql://me:{HIDDEN}@host/db"),
        (f"https://{WORD}@host/path", f"https://{HIDDEN}@host/path"),
        (f"host=h user=me password={WORD}", f"host=h user=me password={HIDDEN}"),
        (f"host=h password='{WORD} host=b'", f"host=h password={HIDDEN}"),
        (f"host=h password=a {WORD}", HIDDEN),
        (f"jdbc:sqlserver://host;password={WORD}", f"jdbc:sqlserver://host?{HIDDEN}"),
        (WORD, HIDDEN),
        ("", HIDDEN),
    ],
)
def test_addresses_are_shown_without_passwords(text: str, wanted: str) -> None:
    assert shown(text) == wanted
    assert address(text).reveal() == text
    assert str(address(text)) == wanted
    assert WORD not in without_secrets(f"cannot use {text}, because")


@given(st.text(max_size=8), st.text(max_size=8), st.sampled_from([":{}@host/0", "u:{}@host/0"]))
def test_a_password_of_any_characters_is_not_shown(before: str, after: str, form: str) -> None:
    text = "redis://" + form.format(before + WORD + after)
    assert WORD not in shown(text)
    assert WORD not in shown("postgres:/" + form.format(before + WORD + after))


@pytest.mark.parametrize(
    "text",
    [
        f"redis://h/0?ssl_ca_certs=/x.pem&password={WORD}&timeout=1",
        f"jdbc:sqlserver://h;user=me;password={WORD};encrypt=true",
        f"host=h password='{WORD}' connect_timeout=5000",
        r"host=h password=hunter2\-planted connect_timeout=5000",
        f"host=h application_name=sunshower connect_timeout=5000 password={WORD}",
    ],
)
def test_passwords_among_parameters_are_hidden_and_nothing_else(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sunshower.secret._known", {})
    address(text)
    prefix = "/x.pem of sunshower: 5000 records, "
    assert without_secrets(f"{prefix}{WORD} is wrong") == f"{prefix}{HIDDEN} is wrong"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("https://host:8443/orders/in", "https://host:8443/orders/in"),
        (
            f"https://me:{WORD}@host:8443/in?key=abcdef&x=1",
            f"https://me:{HIDDEN}@host:8443/in?{HIDDEN}",
        ),
        (f"https://me:{WORD}%21@host/in", f"https://me:{HIDDEN}@host/in"),
        (f"host=h user=me password={WORD}", f"host=h user=me password={HIDDEN}"),
    ],
)
def test_errors_show_an_address_without_its_secrets(
    text: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sunshower.secret._known", {})
    address(text)
    assert without_secrets(f"{text} is unavailable") == f"{wanted} is unavailable"
    Secret(text)  # all of an address that is given as a Secret is hidden
    address(text)
    assert without_secrets(f"{text} is unavailable") == f"{HIDDEN} is unavailable"


SECRETS = (
    *("sasl.password", "ssl.key.password", "ssl.keystore.password", "ssl.key.pem"),
    *("sasl.oauthbearer.client.secret", "sasl.oauthbearer.config", "sasl.jaas.config"),
    *("basic.auth.user.info", "password", "db_password", "api_key", "apiKey", "auth_token"),
    *("spark.hadoop.fs.s3a.access.key", "spark.hadoop.fs.s3a.secret.key"),
    *("spark.hadoop.fs.s3a.session.token", "fs.azure.account.key.x", "spark.ssl.keyPassword"),
    *("fs.s3a.encryption.key", "fs.s3a.server-side-encryption.key", "fs.azure.sas.box.account"),
    *("spark.executorEnv.AWS_SECRET_ACCESS_KEY", "spark.authenticate.secret"),
)
PUBLIC = (
    *("bootstrap.servers", "group.id", "security.protocol", "sasl.mechanism", "sasl.username"),
    *("ssl.ca.location", "ssl.key.location", "sasl.oauthbearer.method", "acks", "key.serializer"),
    *("sasl.oauthbearer.token.endpoint.url", "spark.sql.shuffle.partitions", "workers"),
    *("fs.azure.sas.token.provider.type", "fs.s3a.encryption.algorithm"),
    *("spark.hadoop.fs.s3a.aws.credentials.provider", "enable.sasl.oauthbearer.unsecure.jwt"),
)


@pytest.mark.parametrize("name", SECRETS)
def test_settings_of_these_names_are_secrets(name: str) -> None:
    assert is_secret(name)
    assert protected({name: WORD}) == {name: Secret(WORD)}


@pytest.mark.parametrize("name", PUBLIC)
def test_settings_of_these_names_are_shown(name: str) -> None:
    assert protected({name: "value"}) == {name: "value"}


def declarations() -> dict[str, Any]:
    """Return all declarations that take a secret, given as plain text."""
    kafka = {"bootstrap.servers": "b:9092", "group.id": "g", "sasl.password": WORD}
    digest = ("me", WORD)
    return {
        "RedisState": RedisState(f"redis://me:{WORD}@host/0"),
        "PostgresState": PostgresState(f"host=h password={WORD}"),
        "InZooKeeper": InZooKeeper("zk:2181", digest=digest),
        "ZooKeeperState": ZooKeeperState("zk:2181", digest=digest),
        "PlainOffsets": PlainOffsets("zk:2181", "g", digest=digest),
        "LocalSpark": LocalSpark(settings={"spark.hadoop.fs.s3a.secret.key": WORD}),
        "KafkaRows": KafkaRows("b:9092", {"kafka.sasl.password": WORD}),
        "KafkaSpout": KafkaSpout(kafka, topics=["t"]),
        "KafkaBolt": KafkaBolt(kafka, "t", value="v"),
        "Avro": Avro({"url": f"http://me:{WORD}@host", "basic.auth.user.info": f"me:{WORD}"}),
    }


@pytest.mark.parametrize("name", declarations())
def test_declarations_do_not_show_their_secrets(name: str) -> None:
    declaration = declarations()[name]
    assert WORD not in repr(declaration) + str(declaration) + str(vars(declaration))
    assert WORD.encode() in pickle.dumps(declaration), "the workers need the secret"


@pytest.mark.parametrize(
    "call",
    [
        lambda: redis_backing.connect(f"redis:/user:{WORD}@host/0", 1.0),
        lambda: redis_backing.connect(f"{WORD}", 1.0),
        lambda: redis_backing.connect(f"redis://:{WORD}@host:port/0", 1.0),
        lambda: redis_backing.homes(f"redis://:{WORD}@127.0.0.1:1/0", "s"),
        lambda: postgres_backing.connect(f"postgres:/user:{WORD}@host/db", 2.0),
        lambda: postgres_backing.connect(f"host=h password=a {WORD}", 2.0),
        lambda: postgres_backing.homes(f"postgresql://me:@{WORD}@[host/db"),
        lambda: postgres_backing.homes(f"postgresql://me:{WORD}@127.0.0.1:1/db"),
        lambda: new_client("Producer", {"sasl.password": WORD, "security.protocol": WORD}),
        lambda: KafkaSpout([("sasl.password", WORD)], topics=["t"]),  # type: ignore[arg-type]
        lambda: KafkaBolt([("sasl.password", WORD)], "t"),  # type: ignore[arg-type]
        lambda: KafkaBolt({"sasl.password": WORD}, "t"),
        lambda: InZooKeeper("zk:2181", digest=WORD),  # type: ignore[arg-type]
        lambda: InZooKeeper("zk:2181", digest=(f"me:{WORD}", WORD)),
        lambda: ZooKeeperState("zk:2181", digest=("me", WORD, "")),  # type: ignore[arg-type]
    ],
)
def test_errors_and_their_tracebacks_do_not_show_secrets(call: Any) -> None:
    with pytest.raises((ConfigError, StoreError, KafkaError)) as raised:
        call()
    assert WORD not in str(raised.value)
    assert WORD not in without_secrets("".join(traceback.format_exception(raised.value)))
