"""A Redis that has lost values of a state is an error: the state does not begin at zero again."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sunshower import Records, Retry, Topology, run_inline
from sunshower.errors import ConfigError, StateLost, StoreForbidden, TopologyFailed
from sunshower.runtime.events.health import WaitKind
from sunshower.state import RedisState
from sunshower.state.backing import Home, Mark
from sunshower.trident import FixedBatchSpout, InSqlite, batches, count
from tests.kafka.stage import running

FIRST, SECOND, THIRD = (Mark(f'{{"txid": {txid}}}', f"journal {txid}") for txid in (1, 2, 3))


@pytest.fixture
def client(redis: str) -> Iterator[Any]:
    from redis import Redis

    with closing(Redis.from_url(redis, decode_responses=True)) as opened:
        opened.config_set("maxmemory-policy", "noeviction")
        yield opened
        opened.config_set("maxmemory-policy", "noeviction")
        opened.config_set("maxmemory", 0)


class Keys:
    """A part of a state with three values, and its two keys in Redis."""

    def __init__(self, url: str) -> None:
        from sunshower.state.redis_backing import RedisBacking

        self.new = lambda: RedisBacking(url, home)
        home = Home(f"lost {uuid.uuid4().hex[:8]}", 0)
        self.mark, self.values = (f"sunshower:{{{home}}}:{name}" for name in ("mark", "values"))
        with closing(self.new()) as backing:
            backing.put({"1": "a", "2": "b"}, FIRST, None)
            backing.put({"1": None, "3": "c", "4": "d"}, SECOND, FIRST.word)


LOSSES: dict[str, Callable[[Any, Keys], Any]] = {
    "evicted": lambda client, keys: client.delete(keys.values),
    "expired": lambda client, keys: client.pexpire(keys.values, -1),
    "renamed": lambda client, keys: client.rename(keys.values, f"{keys.values} 2"),
    "moved to another database": lambda client, keys: client.move(keys.values, 5),
    "without a field": lambda client, keys: client.hdel(keys.values, "3"),
    "with one more": lambda client, keys: client.hset(keys.values, "5", "e"),
    "without the mark": lambda client, keys: client.delete(keys.mark),
    "without the mark's word": lambda client, keys: client.hdel(keys.mark, "word"),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_each_read_and_write_of_a_part_that_has_lost_something_is_refused(
    redis: str, client: Any, loss: str
) -> None:
    keys = Keys(redis)
    calls: dict[str, Callable[[Any], Any]] = {
        "mark": lambda backing: backing.mark(),
        "get": lambda backing: backing.get(["2"]),
        "items": lambda backing: [*backing.items()],
        "put": lambda backing: backing.put({"9": "z"}, THIRD, SECOND.word),
    }
    with closing(keys.new()) as former:
        assert former.mark() == SECOND
        LOSSES[loss](client, keys)
        left = client.hgetall(keys.values)
        for call in calls.values():
            with pytest.raises(StateLost, match="has lost a part of state 'lost"):
                call(former)
            with closing(keys.new()) as fresh, pytest.raises(StateLost, match="another name"):
                call(fresh)
    assert client.hgetall(keys.values) == left, "nothing is written"


def test_a_client_that_has_seen_a_mark_misses_it_in_an_emptied_database(redis: str) -> None:
    from redis import Redis

    url = f"{redis}?db=7"
    keys = Keys(url)
    with closing(keys.new()) as backing, closing(Redis.from_url(url)) as client:
        assert backing.mark() == SECOND
        client.flushdb()
        with pytest.raises(StateLost, match="its mark, which is written with them, is missing"):
            backing.get(["2"])
        with pytest.raises(StateLost):
            backing.put({"9": "z"}, THIRD, SECOND.word)


def test_values_that_are_there_again_are_read(redis: str, client: Any) -> None:
    keys = Keys(redis)
    with closing(keys.new()) as backing:
        client.rename(keys.values, "elsewhere")
        with pytest.raises(StateLost):
            backing.get(["2"])
        client.rename("elsewhere", keys.values)
        assert backing.get(["2", "3"]) == ["b", "c"]
        backing.put({"9": "z"}, THIRD, SECOND.word)
        assert dict(backing.items()) == {"2": "b", "3": "c", "4": "d", "9": "z"}


def test_a_part_of_a_former_release_is_read_and_has_a_number_from_the_next_write_on(
    redis: str, client: Any
) -> None:
    keys = Keys(redis)
    client.delete(keys.mark, keys.values)
    client.hset(keys.mark, mapping=FIRST._asdict())  # as it was written without a number
    client.hset(keys.values, mapping={"1": "a", "2": "b"})
    with closing(keys.new()) as backing:
        assert backing.mark() == FIRST
        assert backing.get(["1", "3"]) == ["a", None]
        assert dict(backing.items()) == {"1": "a", "2": "b"}
        backing.put({"1": None, "3": "c", "4": "d"}, SECOND, FIRST.word)
        assert client.hget(keys.mark, "values") == f"3 {SECOND.word}"
        client.hset(keys.mark, mapping=THIRD._asdict())  # the former release writes once more
        client.hset(keys.values, mapping={"5": "e"})
        assert backing.mark() == THIRD
        assert backing.get(["5"]) == ["e"]


# ---- programs -----------------------------------------------------------------------------------


class Word(NamedTuple):
    word: str


def run_counts(words: list[str], url: str, name: str, folder: Path) -> None:
    topology = Topology(name)
    spout = FixedBatchSpout([Word(word) for word in words], 2, type=Word)
    stream = batches(topology, "words", spout, store=InSqlite(folder / f"{name}.db"))
    stream.group_by("word").aggregate(count(), state=RedisState(url, name=name))
    run_inline(topology.graph())


@pytest.fixture
def name() -> str:
    return f"counts-{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random"])
def test_a_policy_that_evicts_these_keys_is_refused_at_the_start(
    redis: str, client: Any, name: str, policy: str, tmp_path: Path
) -> None:
    client.config_set("maxmemory-policy", policy)
    with pytest.raises(TopologyFailed, match=f"maxmemory-policy is {policy}") as caught:
        run_counts(["a", "b"], redis, name, tmp_path)
    assert isinstance(caught.value.__context__, ConfigError)
    assert [*RedisState(redis, name=name).items()] == []
    client.config_set("maxmemory-policy", "noeviction")  # as the message says
    run_counts(["a", "b"], redis, name, tmp_path)


@pytest.mark.parametrize("policy", ["volatile-lru", "volatile-ttl", "volatile-random"])
def test_a_policy_that_evicts_keys_with_a_time_to_live_only_keeps_the_state(
    redis: str, client: Any, name: str, policy: str, tmp_path: Path
) -> None:
    client.config_set("maxmemory-policy", policy)
    run_counts(["a", "b", "a"], redis, name, tmp_path)
    client.config_set("maxmemory", client.info("memory")["used_memory"] + 100_000)
    with client.pipeline(transaction=False) as pipe:
        for number in range(2_000):
            pipe.set(f"other {number}", "x" * 200, ex=1_000)
        pipe.execute()
    client.config_set("maxmemory", 0)
    assert client.info("stats")["evicted_keys"] > 0
    assert dict(RedisState(redis, name=name).items()) == {"a": 2, "b": 1}


def test_a_program_whose_values_were_evicted_does_not_count_from_zero(
    redis: str, client: Any, name: str, tmp_path: Path
) -> None:
    run_counts(["a", "b", "a", "c"], redis, name, tmp_path)
    stored = client.hgetall(f"sunshower:{{{name}/0}}:values")
    assert {key: json.loads(value)[1] for key, value in stored.items()} == {
        '"a"': 2,
        '"b"': 1,
        '"c"': 1,
    }
    client.delete(f"sunshower:{{{name}/0}}:values")
    for _ in range(2):
        with pytest.raises(TopologyFailed, match="its last batch has left 3"):
            run_counts(["a", "b", "a", "c", "a"], redis, name, tmp_path)
    with pytest.raises(StateLost):
        dict(RedisState(redis, name=name).items())
    run_counts(["a", "b", "a", "c", "a"], redis, f"{name}-2", tmp_path)  # as the message says
    assert dict(RedisState(redis, name=f"{name}-2").items()) == {"a": 3, "b": 1, "c": 1}


def test_a_client_without_the_right_to_ask_for_the_policy_may_use_the_state(
    redis: str, client: Any, name: str, tmp_path: Path
) -> None:
    client.execute_command("ACL", "SETUSER", "counter", "on", "nopass", "~*", "+@all", "-info")
    url = redis.replace("unix://", "unix://counter:any@")
    try:
        run_counts(["a"], url, name, tmp_path)
        client.execute_command("ACL", "SETUSER", "counter", "-hset")
        with closing(RedisState(url, name=name).open(Home(name, 0))) as backing:
            mark = backing.mark()
            with pytest.raises(StoreForbidden, match="hset"):
                backing.put({"b": "1"}, THIRD, mark and mark.word)
    finally:
        client.acl_deluser("counter")
    assert dict(RedisState(redis, name=name).items()) == {"a": 1}


def test_values_that_are_lost_while_a_program_runs_charge_no_record(
    redis: str, client: Any, name: str
) -> None:
    values = f"sunshower:{{{name}/0}}:values"
    is_restored = False

    def read() -> Iterator[Word | None]:
        for number in range(40):
            while number == 20 and not is_restored:
                yield None
            yield Word("abc"[number % 3])

    topology = Topology(name, workers=1)
    # One attempt: a single one that is charged would end the topology.
    source = topology.spout("words", Records(read, type=Word), retry=Retry(attempts=1))
    source.group_by("word").aggregate(count(), state=RedisState(redis, name=name))
    with running(topology) as run:
        run.until(lambda: total(client, values) == 20)
        client.rename(values, f"{values} elsewhere")
        is_restored = True
        run.until(
            lambda: any(
                supervision.wait is WaitKind.UNAVAILABLE for supervision in run.core.supervisions
            )
        )
        client.rename(f"{values} elsewhere", values)
        run.until(lambda: run.core.finished)
    assert total(client, values) == 40


def total(client: Any, values: str) -> int:
    stored = client.hgetall(values)
    return sum(json.loads(text)[1] for key, text in stored.items() if key in {'"a"', '"b"', '"c"'})
