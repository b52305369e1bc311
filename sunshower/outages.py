"""Classifies exceptions: which of them mean that a dependency is unavailable.

An exception counts as an outage if it is

    errors.Unavailable or a subclass       raised by sunshower's own stores, brokers and Spark
    ConnectionError, or a built-in subclass of it
    an exact OSError or TimeoutError       with one of the numbers in _ERRNOS
    an error of a client library           by the rules of _LIBRARIES, which import none of them
    listed in Retry(unavailable=(…))       of a spout of the topology

Other subclasses of OSError are ordinary exceptions: FileNotFoundError, requests.HTTPError and
gzip.BadGzipFile are OSErrors, and one bad input must not pause a topology.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from typing import Any

from sunshower.errors import Unavailable

_CONNECTION_ERRORS = {
    ConnectionError,
    BrokenPipeError,
    ConnectionAbortedError,
    ConnectionRefusedError,
    ConnectionResetError,
}
_ERRNOS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE),
    *(errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ETIMEDOUT),
}


def is_unavailable(error: BaseException, also: Iterable[type[BaseException]] = ()) -> bool:
    """Whether `error` means that a dependency is away. `also`: further types of the user's."""
    if isinstance(error, (Unavailable, *also)) or type(error) in _CONNECTION_ERRORS:
        return True
    if type(error) in (OSError, TimeoutError):
        return getattr(error, "errno", None) in _ERRNOS
    for kind in type(error).__mro__:
        library = kind.__module__.partition(".")[0]
        rule = _LIBRARIES.get((library, kind.__name__))
        if rule is not None:
            return rule if isinstance(rule, bool) else rule(error)
    return False


# SQLite: busy, locked, an input/output error, a full disk, a lock protocol that timed out.
_SQLITE_CODES = {5, 6, 10, 13, 15}


def _sqlite(error: Any) -> bool:
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF in _SQLITE_CODES


# PostgreSQL: connection exceptions (08), a transaction aborted by a concurrent one (40), a lock
# held by another one (55P03), insufficient resources such as a full disk or too many connections
# (53), the server stops, starts or ends an idle session (57P), an input/output error (58030), and a
# standby that does not accept writes (25006).
_SQLSTATES = ("08", "40", "55P03", "53", "57P01", "57P02", "57P03", "57P05", "58030", "25006")
# Errors that the server returns while a client connects have no SQLSTATE in psycopg.
_POSTGRES_REFUSALS = (
    *("authentication failed", "no password supplied", "is not permitted to log in"),
    *("no pg_hba.conf entry", "permission denied for database", "certificate"),
    *('" does not exist', "is not currently accepting connections"),
)


def _postgres(error: Any) -> bool:
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if state is not None:
        return str(state).startswith(_SQLSTATES)
    return not any(words in str(error) for words in _POSTGRES_REFUSALS)


# Prefixes of temporary Redis errors: its disk is full, a script runs, replicas are missing.
_REDIS_PASSING = (
    *("MISCONF", "BUSY", "UNKILLABLE", "NOREPLICAS", "LOADING", "TRYAGAIN", "READONLY", "OOM"),
    *("CLUSTERDOWN", "MASTERDOWN"),
)


def _redis(error: Any) -> bool:
    return str(error).startswith(_REDIS_PASSING)


# Codes of librdkafka: the client's own start with an underscore, the others are the brokers'.
KAFKA_CODES = {
    *("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_TIMED_OUT_QUEUE"),
    *("_MSG_TIMED_OUT", "_WAIT_COORD", "_NODE_UPDATE", "_QUEUE_FULL", "_RETRY", "_ISR_INSUFF"),
    *("BROKER_NOT_AVAILABLE", "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION"),
    *("REPLICA_NOT_AVAILABLE", "REQUEST_TIMED_OUT", "NETWORK_EXCEPTION", "KAFKA_STORAGE_ERROR"),
    *("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"),
    *("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "NOT_CONTROLLER"),
    *("_FAIL", "_DESTROY_BROKER", "_PURGE_QUEUE", "_PURGE_INFLIGHT", "LISTENER_NOT_FOUND"),
    *("OFFSET_NOT_AVAILABLE", "UNSTABLE_OFFSET_COMMIT", "CONCURRENT_TRANSACTIONS"),
    *("FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "THROTTLING_QUOTA_EXCEEDED"),
}


def _kafka(error: Any) -> bool:
    name = getattr(error.args[0], "name", None) if error.args else None
    return callable(name) and name() in KAFKA_CODES


_EAI_AGAIN = -3  # of getaddrinfo: no name server answers


def _name_service(error: Any) -> bool:
    return bool(error.errno == _EAI_AGAIN)


def _wrapped(error: Any) -> bool:
    """SQLAlchemy keeps the database client's own error as `orig`."""
    return isinstance(error.orig, BaseException) and is_unavailable(error.orig)


# Errors that are always outages, by the top package of a library.
_PASSING = {
    "ssl": ("SSLEOFError", "SSLZeroReturnError"),
    "redis": (
        *("ConnectionError", "TimeoutError", "OutOfMemoryError", "ReadOnlyError", "TryAgainError"),
        *("ClusterError", "ClusterDownError", "SlotNotCoveredError"),
    ),
    "kazoo": (
        *("ConnectionLoss", "ConnectionDropped", "OperationTimeoutError", "RequestTimeoutError"),
        *("SessionExpiredError", "SessionMovedError", "NotReadOnlyCallError", "KazooTimeoutError"),
        *("NewConfigNoQuorumError", "ThrottledOpError", "RetryFailedError"),
    ),
}
# (top package, class) → whether this error is an outage. The nearest class in the error's method
# resolution order decides.
_LIBRARIES: dict[tuple[str, str], bool | Callable[[Any], bool]] = {
    **{(library, name): True for library, names in _PASSING.items() for name in names},
    ("socket", "gaierror"): _name_service,
    ("sqlite3", "DatabaseError"): _sqlite,
    ("psycopg", "OperationalError"): _postgres,
    ("psycopg", "ReadOnlySqlTransaction"): _postgres,
    ("psycopg2", "OperationalError"): _postgres,
    ("psycopg2", "ReadOnlySqlTransaction"): _postgres,
    ("sqlalchemy", "DBAPIError"): _wrapped,
    ("redis", "AuthenticationError"): False,
    ("redis", "AuthorizationError"): False,
    ("redis", "ExternalAuthProviderError"): False,
    ("redis", "ResponseError"): _redis,
    ("cimpl", "KafkaException"): _kafka,
    ("confluent_kafka", "KafkaException"): _kafka,
    ("confluent_kafka", "SerializationError"): False,
}
