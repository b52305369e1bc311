"""A word count from Kafka to Kafka: every word of a topic with its current total.

    sunshower dev up kafka
    python examples/kafka_word_count.py --fill 100000
    sunshower run examples/kafka_word_count.py

The second command creates the topics `lines` and `totals`, and fills `lines`; the third counts
until Ctrl-C. `sunshower kafka lag word-count` shows the number of unread messages. The address of
the broker is 127.0.0.1:9092, or the value of KAFKA.
"""

from __future__ import annotations

import argparse
import os
import random
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from sunshower import Bolt, Context, Topology
from sunshower.kafka import KafkaBolt, KafkaRecord, KafkaSpout, Message, Producer, Text

KAFKA = {"bootstrap.servers": os.environ.get("KAFKA", "127.0.0.1:9092")}
WORDS = ("it", "rains", "while", "the", "sun", "shines", "and", "a", "fox", "jumps", "over", "dogs")


class Word(NamedTuple):
    word: str


class Total(NamedTuple):
    word: str
    times: int


def split(line: KafkaRecord) -> Iterator[Word]:
    for word in line.value.split():
        yield Word(word)


class CountWords(Bolt[Word, Total]):
    def prepare(self, context: Context) -> None:
        self.counts: Counter[str] = Counter()

    def process(self, record: Word) -> Iterator[Total]:
        self.counts[record.word] += 1
        yield Total(record.word, self.counts[record.word])


source = KafkaSpout({**KAFKA, "group.id": "word-count"}, topics=["lines"], value=Text())
topology = Topology("kafka-word-count", message_timeout_s=30)
lines = topology.spout("lines", source, parallelism=2)
words = lines.local_or_shuffle().bolt("split", split, parallelism=2)
totals = words.fields("word").bolt("count", CountWords, parallelism=2)
totals.local_or_shuffle().bolt("store", KafkaBolt(KAFKA, "totals", key="word"), parallelism=2)


def fill(messages: int, seed: int = 7) -> Counter[str]:
    """Create the topics, write this number of lines, and print the count of each word."""
    admin = AdminClient(KAFKA)
    missing = {"lines", "totals"} - set(admin.list_topics(timeout=10).topics)
    wanted = [NewTopic(name, 4) for name in missing]
    for creation in (admin.create_topics(wanted) if wanted else {}).values():
        creation.result(30)
    dice, sent, producer = random.Random(seed), Counter[str](), Producer(KAFKA)
    for _ in range(messages):
        words = dice.choices(WORDS, k=8)
        sent.update(words)
        while not producer.send(Message("lines", " ".join(words).encode())):
            producer.poll(0.1)  # the queue is full: wait until some are delivered
    if left := producer.flush(60):
        raise SystemExit(f"{left} lines were not delivered")
    return sent


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Fill the topic `lines`.")
    parser.add_argument("--fill", type=int, required=True, metavar="MESSAGES")
    words = fill(parser.parse_args().fill)
    print(f"{sum(words.values()):,} words, {len(words)} distinct, were added to `lines`.")
