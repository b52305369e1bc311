"""Dead letters in a topic of a real Kafka: listed, exported, and replayed by a KafkaSpout."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sunshower import DeadLetter, Retry, Topology
from sunshower.cli.dead.letters import read_topic
from sunshower.cli.ui.source import read_stores
from sunshower.dev.kafka import Kafka
from sunshower.kafka.consuming.decoding import KafkaRecord
from sunshower.kafka.formats import Format, Json
from sunshower.kafka.options import KafkaOptions
from sunshower.kafka.producing.kafka_bolt import KafkaBolt
from sunshower.kafka.spout import KafkaSpout
from sunshower.runtime.control.overview import letter_stores
from sunshower.topologies.requests import Reply, Request
from tests.conftest import Sunshower
from tests.kafka.stage import Run, Seen, running
from tests.kafka.topics import fill, new_topic


class Sale(NamedTuple):
    id: int
    shop: str


class Shop3:
    """Refuses the sales of shop 3 while it is closed."""

    def __init__(self) -> None:
        self.is_open = False

    def __deepcopy__(self, _: Any) -> Shop3:
        return self

    def refuses(self, record: Any) -> bool:
        return not self.is_open and "shop 3" in str(tuple(record))


def shop(
    bootstrap: str, topic: str, dead: str, reads: Format | None, shop_3: Shop3, *, refetch: bool
) -> Topology:
    settings = {"bootstrap.servers": bootstrap}
    spout = KafkaSpout(
        {**settings, "group.id": topic},
        topics=[topic],
        options=KafkaOptions(refetch=refetch),
        value=reads,
    )
    topology = Topology("shop", workers=1)
    retry = Retry(attempts=2, initial_s=0.01, dead_letters=True)
    sales = topology.spout("sales", spout, retry=retry)
    sales.shuffle().bolt("seen", Seen(shop_3.refuses))
    write_letters = KafkaBolt.dead_letters(settings, dead)
    sales.stream("dead_letters").shuffle().bolt("letters", write_letters)
    return topology


def replay(run: Run, letter: DeadLetter) -> list[Any]:
    """Send a letter to the spout, as the process of a worker does."""
    answers: list[Any] = []
    request = Request(letter.reason, letter._asdict(), inf)
    run.core.open_spouts("sales")[0].letters.ask(request, lambda answer, _: answers.append(answer))
    run.until(lambda: isinstance(answers[-1], Reply))
    if answers[-1].error is not None:
        raise answers[-1].error
    return list(answers[-1].rows)


@pytest.mark.servers
@pytest.mark.parametrize("refetch", [False, True], ids=["kept", "refetch"])
@pytest.mark.parametrize("reads", [Json(Sale), None], ids=["records", "bytes"])
def test_letters_in_a_topic_are_listed_and_exported_and_their_records_processed_again(
    kafka: Kafka,
    sunshower: Sunshower,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    reads: Format | None,
    refetch: bool,
) -> None:
    topic, dead = new_topic(kafka.bootstrap), new_topic(kafka.bootstrap, 2)
    values = [json.dumps({"id": id, "shop": f"shop {id}"}).encode() for id in range(5)]
    fill(kafka.bootstrap, topic, values)
    shop_3, settings = Shop3(), {"bootstrap.servers": kafka.bootstrap}
    with running(shop(kafka.bootstrap, topic, dead, reads, shop_3, refetch=refetch)) as run:
        run.until(lambda: run.core.stats().tasks[0].counts.acked == 5)
        (stored,) = read_topic(settings, dead).letters
        assert stored.letter.message_id[:3] == [topic, 0, 3]
        assert stored.place.startswith(f"{dead}[")
        on_page = read_stores(letter_stores(run.core.plan.graph), {})
        assert [letter.letter for letter in on_page.letters] == [stored.letter]
        assert on_page.places == [f"topic {dead}"]
        shop_3.is_open = True
        assert replay(run, stored.letter) == ["acked"]
        expected = Sale(3, "shop 3") if reads else KafkaRecord(topic, 0, 3, None, values[3])
        assert tuple(run.records()[-1]) == expected
        assert type(run.records()[-1]) is type(expected)

        shop_3.is_open = False
        assert replay(run, stored.letter._replace(reason="again")) == ["dead letter"]
        assert run.contiguous() == {f"{topic}[0]": 5}, "replayed letters change no offset"
    again = read_topic(settings, dead).letters
    assert [letter.letter.record for letter in again] == [stored.letter.record] * 2
    assert len({letter.id for letter in again}) == 2

    target = tmp_path / "dead.jsonl"
    options = ("--topic", dead, "--bootstrap", kafka.bootstrap)
    assert sunshower("dead", "list", "--json", *options) == 0
    rows = json.loads(capsys.readouterr().out)["letters"]
    assert [row["place"] for row in rows] == [letter.place for letter in again]
    assert sunshower("dead", "export", target, *options) == 0
    assert [json.loads(line)["spout"] for line in target.read_text().splitlines()] == ["sales"] * 2
    assert sunshower("dead", "list", "--topic", f"{dead}-none", *options[2:]) == 1
    assert f"there is no topic '{dead}-none'" in capsys.readouterr().err
