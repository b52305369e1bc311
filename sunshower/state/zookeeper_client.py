"""Connects to ZooKeeper and disconnects, in bounded time; errors contain kazoo's reason."""

from __future__ import annotations

import logging
import math
import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePath
from types import NoneType
from typing import Any

from sunshower.arguments import NAME, SECONDS, Each, Instance, check_all
from sunshower.errors import ConfigError, StoreError, StoreUnreachable
from sunshower.installed import check_packages
from sunshower.secret import Secret, reveal

# Retry after 0.05 s, doubled each time up to 2 s, each with up to 40 % jitter.
_RETRY = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_jitter": 0.4, "max_delay": 2.0}
# A server that is starting may accept a connection and never answer on it. kazoo waits for that
# as long as the session timeout, and then the session has expired.
ATTEMPT_S = 4.0
# ZooKeeper's permissions (org.apache.zookeeper.ZooDefs.Perms), by the letters of zkCli's setAcl
_PERMISSIONS = {"r": 1, "w": 2, "c": 4, "d": 8, "a": 16}
_DIGEST = Instance((tuple, NoneType), 'a name and a password: ("me", Secret(…))', is_secret=True)
_ACL_SHAPE = 'scheme:id:permissions of the letters cdrwa, such as "auth::cdrwa", "world:anyone:r"'
_ACL = Each(NAME, f"a tuple of texts, {_ACL_SHAPE}")


@dataclass(frozen=True)
class Tls:
    """Certificates for a ZooKeeper with TLS. All files are PEM."""

    authority: str | PurePath  # the CA certificate that signed the server's
    holder: str | PurePath | None = None  # the client's and its key, if the server requires them
    check_host: bool = True  # whether the server's certificate must match its host name

    def __post_init__(self) -> None:
        check_all(self, {}, "Tls: ")


@dataclass(frozen=True)
class ZooKeeperAccess:
    """Where a ZooKeeper is, and how a client gets in: the base of all options for ZooKeeper.

    `hosts` is a connect string; a path at its end is the root of all paths. The session ends
    `session_timeout_s` after the last contact, if the server allows that: by default 4 to 40 s.
    With `digest`, a name and a password, only clients with these credentials can read and write the
    nodes that this client creates; `acl` sets other access to them, as texts in the syntax of
    zkCli: ("auth::cdrwa", "world:anyone:r"). With `tls` all traffic is encrypted.
    """

    hosts: str
    session_timeout_s: float = field(default=10.0, kw_only=True)
    digest: tuple[str, str | Secret] | None = field(default=None, kw_only=True)
    acl: tuple[str, ...] = field(default=(), kw_only=True)
    tls: Tls | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        name = type(self).__name__
        check_all(self, {"session_timeout_s": SECONDS, "digest": _DIGEST, "acl": _ACL}, f"{name}: ")
        _check_acl(name, self.acl)
        object.__setattr__(self, "acl", tuple(self.acl))
        if self.digest is None:
            return
        match self.digest:
            case (str(user), str() | Secret() as word) if user and ":" not in user:
                password = word if isinstance(word, Secret) else Secret(word)
                object.__setattr__(self, "digest", (user, password))
            case _:
                raise ConfigError(
                    f"{name}: digest is not a name without a colon and a password: "
                    'give both, as in digest=("me", Secret.from_environment("ZOOKEEPER_PASSWORD"))'
                )

    @property
    def authority(self) -> str:
        """The name and the password, as ZooKeeper's scheme "digest" has them; else ""."""
        return ":".join(map(reveal, self.digest)) if self.digest else ""


def _check_acl(name: str, acl: Sequence[str]) -> None:
    """Raise ConfigError for what is not scheme:id:permissions."""
    for entry in acl:
        scheme, _, rest = entry.partition(":")
        _, colon, permissions = rest.rpartition(":")
        if not (scheme and colon and permissions and {*permissions} <= _PERMISSIONS.keys()):
            raise ConfigError(f"{name}: {entry!r} in acl is not {_ACL_SHAPE}")


def _acl(access: ZooKeeperAccess) -> list[Any] | None:
    """The access to new nodes for kazoo; None is anyone's."""
    from kazoo.security import ACL, Id, make_digest_acl

    if access.acl:
        parts = [(*entry.partition(":")[::2],) for entry in access.acl]
        split = [(scheme, *rest.rpartition(":")[::2]) for scheme, rest in parts]
        return [
            ACL(sum(_PERMISSIONS[letter] for letter in {*permissions}), Id(scheme, id))
            for scheme, id, permissions in split
        ]
    name, _, password = access.authority.partition(":")
    return [make_digest_acl(name, password, all=True)] if name else None


class LastMessage(logging.Handler):
    """Keeps kazoo's last log message: kazoo reports the reason of a failed connection only there.

    kazoo logs a line per attempt; this passes on errors only.
    """

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()
        if record.levelno >= logging.ERROR:
            logging.getLogger(__name__).handle(record)


def connect(access: ZooKeeperAccess, answer_within_s: float) -> tuple[Any, LastMessage]:
    """A connected kazoo client. Raises StoreUnreachable, StoreError without kazoo, and ConfigError
    for an invalid address or certificate."""
    check_packages("zookeeper", "the client of ZooKeeper", "kazoo", error=StoreError)
    last = LastMessage()
    log = logging.Logger("kazoo", logging.WARNING)  # noqa: LOG001 (of this client alone)
    log.addHandler(last)
    client = _client(access, answer_within_s, log)
    connected = client.start_async()  # `start` may wait for the session timeout in addition
    connected.wait(answer_within_s)
    if not client.connected:
        threading.Thread(target=_stop, args=[client], daemon=True).start()
        raise StoreUnreachable(
            f"no ZooKeeper has answered at {access.hosts} for {answer_within_s:g} s"
            f"{' (' + last.text + ')' if last.text else ''}. Is it running, and is that its "
            f"address{'' if access.tls else ', and does it use no TLS'}?"
        )
    return client, last


def disconnect(client: Any, within_s: float) -> None:
    """End the session. A server that does not answer ends it after the session timeout."""
    ending = threading.Thread(target=_stop, args=[client], daemon=True)
    ending.start()
    ending.join(within_s)


def _stop(client: Any) -> None:
    from kazoo.exceptions import KazooException

    with suppress(KazooException, OSError):
        client.stop()  # waits for 10 s or the session timeout, the longer one, without an answer
        client.close()


def _client(access: ZooKeeperAccess, answer_within_s: float, log: logging.Logger) -> Any:
    from kazoo.client import KazooClient
    from kazoo.handlers.threading import SequentialThreadingHandler
    from kazoo.retry import KazooRetry

    class Handler(SequentialThreadingHandler):  # type: ignore[misc]
        def create_connection(self, *arguments: object, timeout: float, **named: object) -> Any:
            return super().create_connection(*arguments, timeout=min(timeout, ATTEMPT_S), **named)

    who, tls = access.authority, access.tls
    try:
        return KazooClient(
            _repeated_hosts(access),
            handler=Handler(),
            logger=log,
            timeout=access.session_timeout_s,
            connection_retry=KazooRetry(**_RETRY),
            command_retry=KazooRetry(**_RETRY, deadline=answer_within_s),
            auth_data=[("digest", who)] if who else None,
            default_acl=_acl(access),
            **(_encrypted(tls) if tls else {}),
        )
    except ValueError as error:
        raise ConfigError(
            f"{access.hosts!r} is no address of a ZooKeeper, such as host:2181,other:2181/path: "
            f"{error}"
        ) from error


def _repeated_hosts(access: ZooKeeperAccess) -> str:
    """The hosts, repeated so that an attempt takes `ATTEMPT_S` at most: kazoo divides the session
    timeout equally among the listed hosts."""
    hosts, slash, path = access.hosts.partition("/")
    times = math.ceil(access.session_timeout_s / ATTEMPT_S / (hosts.count(",") + 1))
    return ",".join([hosts] * max(1, times)) + slash + path


def _encrypted(tls: Tls) -> dict[str, object]:
    """The TLS options for kazoo. Checks the files here: kazoo would fail in its own thread."""
    file = tls.authority
    try:
        context = ssl.create_default_context(cafile=file)
        if tls.holder:
            file = tls.holder
            context.load_cert_chain(file, file)
    except OSError as error:  # includes ssl.SSLError
        raise ConfigError(f"{file} is no certificate for TLS: {error}") from error
    mine = str(tls.holder) if tls.holder else None
    return {
        "use_ssl": True,
        "ca": str(tls.authority),
        "certfile": mine,
        "keyfile": mine,
        "check_hostname": tls.check_host,
    }
