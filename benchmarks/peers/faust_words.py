"""Faust counts the words of a topic, in an agent and a dictionary; run by `python_peers.py`."""

from __future__ import annotations

import json
import os
import sys
import time
import uuid

import faust

address, name, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])  # the argument `how` is ignored
app = faust.App(
    f"bench-{uuid.uuid4().hex[:8]}",
    broker=f"kafka://{address}",
    store="memory://",
    value_serializer="raw",
    consumer_auto_offset_reset="earliest",
    topic_disable_leader=True,
    web_enabled=False,
)
topic = app.topic(name, value_type=bytes, value_serializer="raw")
counts: dict[bytes, int] = {}


@app.agent(topic)
async def count(values: faust.Stream[bytes]) -> None:
    done, begun_s = 0, 0.0
    async for value in values:
        if not done:
            begun_s = time.monotonic()
        for word in value.split():
            counts[word] = counts.get(word, 0) + 1
        done += 1
        if done == wanted:
            summary = {"begun_s": begun_s, "ended_s": time.monotonic(), "done": done}
            result = json.dumps(summary | {"words": sum(counts.values())})
            os.write(1, f"{result}\n".encode())
            os._exit(0)


if __name__ == "__main__":
    sys.argv[1:] = ["worker", "--loglevel", "error", "--without-web"]
    app.main()
