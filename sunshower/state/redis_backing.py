"""Storage of states in Redis: for each task a hash of values, and a hash for its mark.

    HGETALL "sunshower:{counts/0}:values"      "storm" → [7,3,2]      values are JSON

The braces keep both hashes on one cluster node. A batch is one MULTI … EXEC under a WATCH of both.
The mark has the number of values, which each read and write compares with HLEN: values that Redis
has evicted, or that somebody has removed, are an error. Redis loses no acknowledged write in a
crash only with appendonly yes and appendfsync always.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import chain, islice
from typing import Any

from sunshower.errors import (
    ConfigError,
    StateLost,
    StoreError,
    StoreForbidden,
    StoreUnreachable,
)
from sunshower.installed import check_packages
from sunshower.outages import is_unavailable
from sunshower.secret import Secret, address, reveal, without_secrets
from sunshower.state.backing import ANSWER_WITHIN_S, Home, Mark, is_there

_AT_ONCE = 5_000  # fields in one command
# What the mark says about the values, and how many there are.
_LOOK = """return {redis.call('HGET', KEYS[1], 'word'), redis.call('HGET', KEYS[1], 'values'),
    redis.call('HLEN', KEYS[2])}"""
# The number is stored with the word it belongs to: a release that does not store it replaces only
# the word. So do states of former releases, whose number is unknown until the next write.
_COUNT = """local word = redis.call('HGET', KEYS[1], 'word')
    redis.call('HSET', KEYS[1], 'values', redis.call('HLEN', KEYS[2]) .. ' ' .. word)"""
_HOME = re.compile(r"\{(.*)/(\d+)\}:mark", re.DOTALL)


def connect(url: str | Secret, answer_within_s: float) -> Any:
    """A client; it connects at its first use. Raises ConfigError; StoreError without redis."""
    check_packages("redis", "the client of Redis", "redis", error=StoreError)
    from redis import Redis

    try:
        return Redis.from_url(
            reveal(url),
            decode_responses=True,
            socket_timeout=answer_within_s,
            socket_connect_timeout=answer_within_s,
        )
    except ValueError as error:
        raise ConfigError(
            f"{address(url)} is no address of a Redis, such as redis://host:6379/0: "
            f"{without_secrets(str(error))}"
        ) from None  # its text may contain a part of the password


@contextmanager
def errors(where: object) -> Iterator[None]:
    """Convert the client's errors: StoreUnreachable for an outage (outages.py), else StoreForbidden
    or StoreError."""
    from redis import exceptions as they

    try:
        yield
    except they.RedisError as error:
        why = without_secrets(str(error))
        if is_unavailable(error):
            raise StoreUnreachable(f"the Redis at {where} cannot be used: {why}") from error
        if isinstance(error, they.AuthenticationError | they.NoPermissionError):
            raise StoreForbidden(
                f"the Redis at {where} does not let this client in: {why}"
            ) from error
        of_value = isinstance(error, they.DataError) or "maximum allowed size" in why
        text = f"the Redis at {where} refuses that: {why}"
        raise StoreError(text, of_value=of_value) from error


class RedisBacking:
    """Implements the port `Backing`."""

    def __init__(
        self,
        url: str | Secret,
        home: Home,
        *,
        prefix: str = "sunshower",
        answer_within_s: float = ANSWER_WITHIN_S,
    ) -> None:
        self._where = address(url)
        self._home = home
        self._mark = f"{prefix}:{{{home}}}:mark"
        self._values = f"{prefix}:{{{home}}}:values"
        self._redis = connect(url, answer_within_s)
        self._had_mark = False  # at any call so far

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with errors(self._where):
                yield
        except StoreUnreachable:
            # The next call reconnects: after a fail-over, to another server.
            self._redis.connection_pool.disconnect()
            raise

    def mark(self) -> Mark | None:
        with self._errors(), self._redis.pipeline(transaction=True) as pipe:
            pipe.hmget(self._mark, ["word", "journal", "values"])
            pipe.hlen(self._values)
            (word, journal, counted), count = pipe.execute()
        self._check(word, counted, count)
        return None if word is None else Mark(word, journal or "")

    def get(self, keys: Sequence[str]) -> list[str | None]:
        if not keys:
            return []
        with self._errors(), self._redis.pipeline(transaction=True) as pipe:
            pipe.eval(_LOOK, 2, self._mark, self._values)
            for start in range(0, len(keys), _AT_ONCE):
                pipe.hmget(self._values, keys[start : start + _AT_ONCE])
            look, *values = pipe.execute()
        self._check(*look)
        return [*chain.from_iterable(values)]

    def put(self, changes: Mapping[str, str | None], mark: Mark, seen: str | None) -> None:
        from redis import WatchError

        with self._errors(), self._redis.pipeline(transaction=True) as pipe:
            while True:
                pipe.watch(self._mark, self._values)
                word, counted, count = pipe.eval(_LOOK, 2, self._mark, self._values)
                self._check(word, counted, count)
                if is_there(self._home, word, mark, seen):
                    return
                pipe.multi()
                pipe.hset(self._mark, mapping=mark._asdict())
                _write(pipe, self._values, changes)
                pipe.eval(_COUNT, 2, self._mark, self._values)
                try:
                    pipe.execute()
                except WatchError:
                    continue  # the mark may have changed: compare it again
                return

    def items(self) -> Iterator[tuple[str, str]]:
        with self._errors():
            self.mark()
            yield from self._redis.hscan_iter(self._values, count=_AT_ONCE)
            self.mark()  # values that were lost meanwhile are not among those above

    def _check(self, word: str | None, counted: str | None, count: int) -> None:
        """Raise StateLost unless there are as many values as the mark says."""
        number, _, counted_word = (counted or "").partition(" ")
        self._had_mark |= word is not None
        if word is None and (count or self._had_mark):
            expected = "its mark, which is written with them, is missing"
        elif word is not None and counted_word == word and number != str(count):
            expected = f"its last batch has left {int(number):,}"
        else:
            return
        raise StateLost(
            f"the Redis at {self._where} has lost a part of state {self._home.state!r}, task "
            f"{self._home.task}: it has {count:,} values, and {expected}. Redis has evicted a key "
            "(maxmemory-policy), or somebody has removed or changed one. Restore "
            f"{self._mark!r} and {self._values!r} from a copy, or give the state another name, "
            "under which it begins empty"
        )

    def count(self) -> None:
        """Not known here."""

    def close(self) -> None:
        self._redis.close()


def _write(pipe: Any, values: str, changes: Mapping[str, str | None]) -> None:
    new = iter([(key, value) for key, value in changes.items() if value is not None])
    gone = iter([key for key, value in changes.items() if value is None])
    while part := dict(islice(new, _AT_ONCE)):
        pipe.hset(values, mapping=part)
    while names := list(islice(gone, _AT_ONCE)):
        pipe.hdel(values, *names)


def homes(url: str | Secret, prefix: str) -> list[Home]:
    """All homes with a mark, in order."""
    with closing(connect(url, ANSWER_WITHIN_S)) as client, errors(address(url)):
        keys = client.scan_iter(match=f"{prefix}:{{*}}:mark", count=_AT_ONCE)
        matches = [_HOME.search(key) for key in keys]
    return sorted(Home(match[1], int(match[2])) for match in matches if match)


def check_policy(url: str | Secret) -> None:
    """Raise ConfigError for a Redis that evicts keys without a time to live, as those here are."""
    from redis.exceptions import NoPermissionError

    try:
        with closing(connect(url, ANSWER_WITHIN_S)) as client, errors(address(url)):
            policy = client.info("memory").get("maxmemory_policy", "")
    except StoreError as error:
        if not isinstance(error.__cause__, NoPermissionError):
            raise
        return  # what is lost will be missed by the numbers in the marks
    if policy.startswith("allkeys"):
        raise ConfigError(
            f"the Redis at {address(url)} evicts keys when its memory is full (maxmemory-policy is "
            f"{policy}), so a state would lose its values: set maxmemory-policy to noeviction, or "
            "use another Redis"
        )
