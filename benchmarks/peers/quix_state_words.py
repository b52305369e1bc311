"""Quix Streams counts the words of a topic in its state (RocksDB); run by `python_peers.py`.

group-by      a state for each word: the words are sent through a topic of Kafka
by-partition  a state for each partition of the input: four separate counts

The last argument is either of these with the guarantee: `group-by:exactly-once`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import uuid
from typing import Any

from quixstreams import Application, State

ADDRESS, NAME, WANTED = sys.argv[1], sys.argv[2], int(sys.argv[3])
HOW, _, GUARANTEE = sys.argv[4].partition(":")


class Words:
    """Counts the words of all messages, and prints the result after the last one."""

    def __init__(self) -> None:
        self.done = self.split_up = self.words = 0
        self.begun_s = 0.0

    def split(self, value: bytes) -> list[str]:
        if not self.begun_s:
            self.begun_s = time.monotonic()
        words = value.decode().split()
        self.done += 1
        self.split_up += len(words)
        return words

    def count(self, word: str, state: State) -> None:
        state.set("n", state.get("n", 0) + 1)
        self.words += 1
        self.print_when_done()

    def split_and_count(self, value: bytes, state: State) -> None:
        for word in self.split(value):
            state.set(word, state.get(word, 0) + 1)
            self.words += 1
        self.print_when_done()

    def print_when_done(self) -> None:
        if self.done == WANTED and self.words == self.split_up:
            summary = {"begun_s": self.begun_s, "ended_s": time.monotonic(), "done": self.done}
            result = json.dumps(summary | {"words": self.words})
            os.write(1, f"{result}\n".encode())
            os._exit(0)  # before the last commit, which is therefore not measured


def key_of(word: Any) -> Any:
    return word


app = Application(
    broker_address=ADDRESS,
    consumer_group=f"bench-{uuid.uuid4().hex[:8]}",
    auto_offset_reset="earliest",
    processing_guarantee=GUARANTEE,
    commit_interval=1.0,
    loglevel=logging.ERROR,
)
words = Words()
messages = app.dataframe(app.topic(NAME, value_deserializer="bytes", key_deserializer="str"))
if HOW == "group-by":
    texts = dict.fromkeys(("value_serializer", "key_serializer"), "str")
    texts |= dict.fromkeys(("value_deserializer", "key_deserializer"), "str")
    grouped = messages.apply(words.split, expand=True).group_by(key_of, name="word", **texts)
    grouped.update(words.count, stateful=True)
else:
    messages.update(words.split_and_count, stateful=True)
app.run()
