"""Messages that are read as Arrow tables, many at a time, are settled individually."""

from __future__ import annotations

import uuid
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc

from sunshower import Derived, Retry, Topology, batch
from sunshower.dev.kafka import Kafka
from sunshower.kafka.spout import KafkaSpout
from tests.kafka.stage import Seen, running
from tests.kafka.topics import fill, new_topic


@batch
def split_values(messages: pa.Table) -> Derived:
    words = pc.utf8_split_whitespace(messages["value"].combine_chunks().cast(pa.string()))
    rows = pa.table({"word": pc.list_flatten(words)})
    return Derived(rows, pc.list_parent_indices(words).to_numpy())


def test_only_the_message_whose_word_failed_is_emitted_again(kafka: Kafka) -> None:
    topic, group = new_topic(kafka.bootstrap), f"g-{uuid.uuid4().hex[:8]}"
    fill(kafka.bootstrap, topic, [f"a{n} b{n}".encode() for n in range(300)])
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": group}
    tries: Counter[str] = Counter()

    def refuse(record: tuple[str]) -> bool:
        tries[record[0]] += 1
        return record == ("b7",) and tries["b7"] == 1

    program = Topology("columns", workers=1)
    spout = KafkaSpout(settings, topics=[topic], fields=("value",))
    values = program.spout("in", spout, retry=Retry(initial_s=0.01))
    words = values.shuffle().bolt("split", split_values, fields=("word",))
    words.shuffle().bolt("seen", Seen(refuse))
    with running(program) as run:
        run.until(lambda: sum(run.contiguous().values()) == 300)
    assert tries == {f"{letter}{n}": 1 + (n == 7) for letter in "ab" for n in range(300)}
