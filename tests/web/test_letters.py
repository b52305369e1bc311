"""Dead letters over HTTP: lists, searches, single letters, and replays with the token."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread, current_thread
from typing import Any

import pytest

from sunshower import Counter, DeadLetter, JsonLines, Retry, Topology
from sunshower.cli.dead.letters import Ask, read_files, replayed
from sunshower.cli.ui import source as page_source
from sunshower.cli.ui.application import served_page
from sunshower.errors import ClusterError, RequestFailed, SunshowerError
from sunshower.kafka.producing.kafka_bolt import KafkaBolt
from sunshower.runtime.control.overview import letter_stores
from sunshower.secret import Secret
from sunshower.topologies.retry import ACKED, LetterStore
from tests.web.conftest import TOKEN, Answer, ask
from tests.web.prepared import HOSTILE, HostileSource, PreparedSource
from tests.web.prepared_letters import NEWEST_S, hostile, orders, shop_with_letters, write_letters

SHOP = "/api/letters?name=web-shop"


def replay(url: str, token: str = TOKEN, **letters: str) -> Answer:
    body = json.dumps({"name": "web-shop", "letters": letters})
    return ask(url, "/api/replay", "POST", body, X_Sunshower_Token=token)


def ended(url: str) -> dict[str, Any]:
    """Wait until the replay has ended. Return its progress."""
    while True:
        progress: dict[str, Any] = ask(url, "/api/replay?name=web-shop").json
        if not progress["running"]:
            return progress


def messages(listed: dict[str, Any]) -> list[int]:
    records = [letter["record"] for letter in listed["letters"]]
    return [int(record.partition(",")[0].removeprefix("id: ")) for record in records]


# ---- lists --------------------------------------------------------------------------------------


def test_the_list_has_the_letters_of_all_files_the_newest_first(url: str, tmp_path: Path) -> None:
    listed = ask(url, SHOP).json
    assert messages(listed) == list(range(12))
    assert (listed["all"], listed["matching"], listed["new"]) == (12, 12, 12)
    assert listed["places"] == [str(tmp_path / f"dead.{n}.jsonl") for n in (0, 1)]
    assert listed["causes"] == {"exception": 8, "timeout": 4}
    assert listed["components"] == {"price": 8, "store": 4}
    assert listed["notes"] == []
    assert listed["letters"][0].items() >= {
        "time": NEWEST_S, "component": "price", "task": 0, "cause": "exception",
        "error": "KeyError: 'A-1000'", "replayed": None, "spout": "orders",
    }.items()  # fmt: skip


@pytest.mark.parametrize("time", ["soon", "nan", "inf", "1e999"])
def test_an_invalid_time_is_refused(url: str, time: str) -> None:
    answer = ask(url, f"{SHOP}&since={time}")
    assert (answer.status, "not a Unix time" in answer.json["error"]) == (404, True)


def test_a_long_list_has_the_newest_letters_and_the_total(tmp_path: Path) -> None:
    source = PreparedSource(shop_with_letters(tmp_path, 260))
    with served_page(source, TOKEN, port=0) as url:
        listed = ask(url, SHOP).json
    assert messages(listed) == list(range(100))
    assert (listed["all"], listed["matching"]) == (260, 260)


def test_unreadable_files_and_lines_are_noted(
    url: str, source: PreparedSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dead.1.jsonl").unlink()
    (tmp_path / "dead.0.jsonl").write_text('{"a": 1}\nno JSON\n')
    shop = source.prepared["web-shop"]
    source.prepared["web-shop"] = replace(shop, letters={**shop.letters, "custom": None})
    notes = ask(url, SHOP).json["notes"]
    assert any("dead.1.jsonl cannot be read on this server's machine" in note for note in notes)
    assert any(
        "custom writes dead letters where this page cannot read them" in note for note in notes
    )
    assert "2 lines or messages are not valid dead letters" in notes
    monkeypatch.setattr(page_source, "FILES_BYTES_MAX", 10)
    assert "this page reads at most 10" in ask(url, SHOP).json["error"]


def test_a_topology_without_readers_of_dead_letters_has_none(url: str) -> None:
    listed = ask(url, "/api/letters?name=quiet").json
    assert (listed["all"], listed["letters"], listed["places"]) == (0, [], [])
    assert not ask(url, "/api/topology?name=quiet").json["dead_letters"]
    assert ask(url, "/api/topology?name=web-shop").json["dead_letters"]
    assert ask(url, "/api/letters?name=none").status == 404


def test_control_characters_of_a_letter_are_escaped_and_long_values_clipped(
    tmp_path: Path,
) -> None:
    letter = hostile("\x1b[31m\u202e")._replace(record={"text": "x" * 10**6, "bell": "\x07"})
    letters = page_source.read_stores(write_letters(tmp_path, [letter]), {})
    facts = page_source.letter_facts(letters.letters[0])
    texts = json.dumps(facts, ensure_ascii=False)
    assert not {"\x1b", "\u202e", "\x07"} & set(texts)
    assert "\\\\u202e" in json.dumps(facts["reason"])
    assert len(texts) < 50_000


def test_a_hostile_letter_is_sent_as_json(tmp_path: Path) -> None:
    source = HostileSource(write_letters(tmp_path, [hostile(HOSTILE)]))
    with served_page(source, TOKEN, port=0) as url:
        answer = ask(url, "/api/letters?name=any")
        assert answer.headers["content-type"] == "application/json"
        assert answer.json["letters"][0]["error"] == HOSTILE


# ---- replays ------------------------------------------------------------------------------------


def test_without_the_token_nothing_is_replayed(url: str, source: PreparedSource) -> None:
    assert replay(url, "guessed").status == 401
    assert ask(url, "/api/replay", "POST", "{}").status == 401
    assert ask(url, "/api/replay?name=web-shop").json == {"total": 0, "running": False}
    assert source.replayed == []


def test_letters_that_are_newer_than_the_list_are_not_replayed_with_it(
    url: str, source: PreparedSource, tmp_path: Path
) -> None:
    until = ask(url, SHOP).json["until"]
    newer = orders(1)[0]._replace(message_id="newer", time=NEWEST_S + 1e-3)
    write_letters(tmp_path, [*orders(), newer])
    assert replay(url, until=str(until)).json == {"said": "12 dead letters are being replayed"}
    ended(url)
    assert len(source.replayed) == 12
    assert "newer" not in source.replayed
    write_letters(tmp_path, [newer, newer._replace(time=0.0)])  # older releases write no time
    assert ask(url, SHOP).json["until"] is None


def test_one_replay_runs_at_a_time(url: str, source: PreparedSource) -> None:
    may_end = Event()

    def hold(name: str) -> Ask:
        def wait(_: object) -> str:
            may_end.wait(120)
            return ACKED

        return wait

    source._ask = hold  # type: ignore[method-assign]
    assert replay(url, component="store").status == 200
    answer = replay(url, component="price")
    assert (answer.status, "are being replayed" in answer.json["error"]) == (409, True)
    may_end.set()
    assert ended(url)["acked"] == 4
    assert replay(url, component="price").status == 200
    ended(url)


def test_an_error_that_ends_the_replay_is_reported(url: str, source: PreparedSource) -> None:
    def unreachable(name: str) -> Ask:
        def refuse(_: object) -> str:
            raise ClusterError("the master is unavailable")

        return refuse

    source._ask = unreachable  # type: ignore[method-assign]
    replay(url)
    progress = ended(url)
    assert (progress["not_settled"], progress["errors"]) == (12, ["the master is unavailable"])
    assert ask(url, SHOP).json["new"] == 12


@pytest.mark.parametrize(
    "body",
    [
        "[1]",
        '{"name": "web-shop"}',
        '{"name": "web-shop", "letters": {"component": 1}}',
        '{"name": "web-shop", "letters": {"files": "/etc/passwd"}}',
        '{"name": 1, "letters": {}}',
        "[" * 2000 + "]" * 2000,
    ],
)
def test_wrong_replays_are_refused(url: str, source: PreparedSource, body: str) -> None:
    answer = ask(url, "/api/replay", "POST", body, X_Sunshower_Token=TOKEN)
    assert (answer.status, "a replay is such as" in answer.json["error"]) == (400, True)
    assert source.replayed == []


def test_the_process_can_end_without_waiting_for_replays(tmp_path: Path) -> None:
    write_letters(tmp_path, orders(4))
    letters = read_files([str(tmp_path / "dead.*.jsonl")]).letters
    threads: list[Thread] = []

    def note(_: Any) -> str:
        threads.append(current_thread())
        return ACKED

    assert len(list(replayed(note, letters, "web-shop", lambda: 0.0))) == 4
    assert all(thread.daemon for thread in threads)


def test_letters_are_replayed_a_few_at_a_time_until_a_fatal_error(tmp_path: Path) -> None:
    write_letters(tmp_path, orders(40))
    letters = read_files([str(tmp_path / "dead.*.jsonl")]).letters
    asked: list[str] = []

    def fail(letter: Any) -> str:
        asked.append(letter.id)
        raise RequestFailed("no") if len(asked) < 3 else ClusterError("gone")

    outcomes: list[str | SunshowerError] = []
    with pytest.raises(ClusterError, match="gone"):
        outcomes.extend(outcome for _, outcome in replayed(fail, letters, "web-shop", lambda: 0.0))
    assert len(outcomes) <= 2
    assert len(asked) <= 18  # sixteen at a time


# ---- where a topology writes them ---------------------------------------------------------------


def test_the_overview_says_where_letters_are_and_has_no_secrets(tmp_path: Path) -> None:
    def keep(letter: DeadLetter) -> None: ...

    topology = Topology("shop")
    retry = Retry(dead_letters=True)
    topology.spout("a", Counter(1), retry=Retry(dead_letters=tmp_path / "a.jsonl"))
    several = topology.spout("b", Counter(1), retry=retry).stream("dead_letters").shuffle()
    several.bolt("b-letters", JsonLines(tmp_path / "b.jsonl"), 2)
    settings = {
        "bootstrap.servers": "kafka:9092",
        "security.protocol": "SASL_SSL",
        "sasl.password": "hidden!",
        "linger.ms": 5,
    }
    kafka = topology.spout("c", Counter(1), retry=retry).stream("dead_letters").shuffle()
    kafka.bolt("c-letters", KafkaBolt.dead_letters(settings, "dead"))
    topology.spout("d", Counter(1), retry=retry).stream("dead_letters").shuffle().bolt("d-l", keep)
    stores = letter_stores(topology.graph())
    assert stores == {
        "a-dead-letters": LetterStore((str(tmp_path / "a.jsonl"),)),
        "b-letters": LetterStore((str(tmp_path / "b.0.jsonl"), str(tmp_path / "b.1.jsonl"))),
        "c-letters": LetterStore(
            topic="dead",
            settings={"bootstrap.servers": "kafka:9092", "security.protocol": "SASL_SSL"},
        ),
        "d-l": None,
    }
    assert not any(isinstance(value, Secret) for value in stores["c-letters"].settings.values())
