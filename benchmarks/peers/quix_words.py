"""Quix Streams counts the words of a topic, in a function; run by `python_peers.py`."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import uuid

from quixstreams import Application

ADDRESS, NAME, WANTED, HOW = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]


class Words:
    """Counts the words of `WANTED` messages, and ends the process when the next one arrives."""

    def __init__(self) -> None:
        self.counts: dict[bytes, int] = {}
        self.done, self.begun_s = 0, 0.0

    def split(self, value: bytes) -> list[bytes]:
        if not self.done:
            self.begun_s = time.monotonic()
        if self.done == WANTED:
            summary = {"begun_s": self.begun_s, "ended_s": time.monotonic(), "done": self.done}
            result = json.dumps(summary | {"words": sum(self.counts.values())})
            os.write(1, f"{result}\n".encode())
            os._exit(0)
        self.done += 1
        return value.split()

    def count(self, word: bytes) -> None:
        self.counts[word] = self.counts.get(word, 0) + 1

    def split_and_count(self, value: bytes) -> None:
        counts = self.counts
        for word in self.split(value):
            counts[word] = counts.get(word, 0) + 1


app = Application(
    broker_address=ADDRESS,
    consumer_group=f"bench-{uuid.uuid4().hex[:8]}",
    auto_offset_reset="earliest",
    auto_create_topics=False,
    loglevel=logging.ERROR,
)
words = Words()
messages = app.dataframe(app.topic(NAME, value_deserializer="bytes"))
if HOW == "expand":
    messages.apply(words.split, expand=True).update(words.count)
else:
    messages.update(words.split_and_count)
app.run()
