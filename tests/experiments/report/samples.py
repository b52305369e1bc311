"""A sample outcome with every field, and a history of some thousand messages."""

from __future__ import annotations

import numpy as np

from sunshower.experiments.event_history import History
from sunshower.experiments.outcome import Finding, Outcome, Recovery, Verdict
from sunshower.runtime.events.event_log import Entry, What
from sunshower.runtime.tracking.ids import make_roots

EVIL = '</pre><script src="https://example.org/x.js">alert("lost")</script>'


def outcome(
    verdict: Verdict = Verdict.BROKEN, *, seed: int = 7, recovered_s: float | None = 3.5
) -> Outcome:
    """One run, whose evidence contains HTML."""
    findings = (
        Finding("at-least-once", verdict, ("message 17 is missing",), (EVIL, "├─ relay[1]"), {}),
        Finding("duplicates", Verdict.HOLDS, ("4 came twice",), (), {"duplicates": 4}),
    )
    return Outcome(
        "kill & <recover>",
        "sim",
        seed,
        {"timeout_s": 5.0, "word": "<b>"},
        findings,
        (Recovery("kill relay[0]", 2.0, 2.0, recovered_s),),
        {"emitted": 2_000, "completed": 1_999, "throughput": 199.9},
        10.0,
        {"python": "3.11"},
    )


def history(batches: int = 100, batch: int = 10, faults: int = 1) -> History:
    """`batches` times `batch` messages in ten seconds; one in ten fails once."""
    entries: list[Entry] = []
    numbers = np.arange(batch)
    attempts = np.ones(batch, np.int64)
    for place in range(batches):
        at_s = 10 * place / batches
        roots = make_roots(1, np.full(batch, 2 * place, np.uint32), np.arange(batch))
        mine = numbers + place * batch
        entries.append(Entry(at_s, What.EMITTED, 1, roots, mine, attempts))
        if place % 10 == 5:
            causes = ["timeout" if number % 2 else "actor died" for number in numbers]
            entries.append(Entry(at_s + 0.1, What.FAILED, 1, roots, mine, attempts, causes))
            roots = make_roots(1, np.full(batch, 2 * place + 1, np.uint32), np.arange(batch))
            entries.append(Entry(at_s + 0.2, What.EMITTED, 1, roots, mine, attempts + 1))
            at_s += 0.2
        entries.append(Entry(at_s + 0.05, What.COMPLETED, 1, roots, mine, attempts))
    for number in range(faults):
        words, at_s = f"kill task {number}", 2 + number * 5 / faults
        entries.append(Entry(at_s, What.BEGUN, detail=words))
        entries.append(Entry(at_s + number % 2, What.ENDED, detail=words))
    return History(entries, {1: "numbers[0]"})
