"""Traced trees for tests: a failed attempt and its replay, with hostile texts in them."""

from __future__ import annotations

from sunshower.runtime.events.trace_recorder import TraceHop, Traces, TupleTrace

BEGUN_S = 1_750_000_000.0


def hop(edge: int, parent: int | None, source: str, target: str, **other: object) -> TraceHop:
    times = {"sent_s": 0.001, "delivered_s": 0.0025, "acked_s": 0.0051, "refused_s": None}
    times |= {name: at for name, at in other.items() if name in times}
    return TraceHop(
        f"{edge:016x}",
        None if parent is None else f"{parent:016x}",
        source,
        target,
        1,
        **{name: None if at is None else BEGUN_S + at for name, at in times.items()},
        cause=other.get("cause"),
        record=other.get("record", "Word(word='cat')"),
    )


FAILED = TupleTrace(
    root="0001000001000007",
    outcome="failed",
    message_id="'<script>alert(1)</script>'",
    number=7,
    spout="lines[0]",
    worker=0,
    attempt=1,
    emitted_s=BEGUN_S,
    ended_s=BEGUN_S + 0.25,
    cause="exception",
    reason="exception in count[0]: ValueError: \x1b[31mno\nsuch word",
    hops=(
        hop(0xA1, None, "lines[0]", "split[0]", record="Line(text='the \x1b[2J[bold]cat')"),
        hop(0xA2, 0xA1, "split[0]", "count[0]", acked_s=None, refused_s=0.2, cause="exception"),
        hop(0xA3, 0xA1, "split[0]", "count[1]", acked_s=None),
        hop(0xA4, 0xA1, "split[0]", "count[1]", acked_s=None, delivered_s=None),
    ),
    dropped=3,
)
REPLAY = TupleTrace(
    **{
        **vars(FAILED),
        "root": "0001000010000008",
        "outcome": "complete",
        "attempt": 2,
        "emitted_s": BEGUN_S + 1,
        "ended_s": BEGUN_S + 1.5,
        "cause": None,
        "reason": "",
        "hops": (hop(0xB1, None, "lines[0]", "split[0]"), hop(0xB2, 0xB1, "split[0]", "count[0]")),
        "dropped": 0,
    }
)
FOUND = Traces((REPLAY, FAILED), (3,))
