"""Quix Streams counts the words of a topic, in a function and a dictionary; run by `running.py`."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import uuid

from quixstreams import Application

ADDRESS, NAME, WANTED = sys.argv[1], sys.argv[2], int(sys.argv[3])


class Words:
    """Counts the words of so many messages, and ends the process."""

    def __init__(self) -> None:
        self.counts: dict[bytes, int] = {}
        self.done, self.begun_s = 0, 0.0

    def __call__(self, value: bytes) -> None:
        if not self.done:
            self.begun_s = time.monotonic()
        counts = self.counts
        for word in value.split():
            counts[word] = counts.get(word, 0) + 1
        self.done += 1
        if self.done == WANTED:
            found = {"begun_s": self.begun_s, "ended_s": time.monotonic(), "done": self.done}
            told = json.dumps(found | {"words": sum(counts.values())})
            os.write(1, f"{told}\n".encode())
            os._exit(0)


app = Application(
    broker_address=ADDRESS,
    consumer_group=f"bench-{uuid.uuid4().hex[:8]}",
    auto_offset_reset="earliest",
    auto_create_topics=False,
    loglevel=logging.ERROR,
)
app.dataframe(app.topic(NAME, value_deserializer="bytes")).update(Words())
app.run()
