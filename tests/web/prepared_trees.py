"""Recorded tuple trees of the prepared web shop: a failed tree, its replay, and others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sunshower.runtime.events.trace_recorder import TraceHop, TraceReport, Traces, TupleTrace

BEGUN_S = 1_750_000_000.0
FAILED_ROOT = "0001000001000007"


def hop(
    edge: int,
    parent: int | None,
    way: str,
    times_ms: tuple[float, float | None, float | None],
    record: str,
    cause: str | None = None,
) -> TraceHop:
    """`way`: "source target worker"; `times_ms`: sent, delivered and ended, since the emit."""
    source, target, worker = way.split()
    sent_s, delivered_s, ended_s = (
        None if time is None else BEGUN_S + time / 1e3 for time in times_ms
    )
    return TraceHop(
        edge=f"{edge:016x}",
        parent=None if parent is None else f"{parent:016x}",
        source=source,
        target=target,
        worker=int(worker),
        sent_s=sent_s,
        delivered_s=delivered_s,
        acked_s=None if cause else ended_s,
        refused_s=ended_s if cause else None,
        cause=cause,
        record=record,
    )


def reports(*of_edges: tuple[int, ...]) -> Iterator[TraceReport]:
    """The reports with these edges, a millisecond after each other; the first is of the spout."""
    value = 0
    for at, edges in enumerate(of_edges):
        xor = 0
        for edge in edges:
            xor ^= edge
        value ^= xor
        digits = tuple(f"{edge:016x}" for edge in edges)
        yield TraceReport(
            BEGUN_S + (1 + at) / 1e3, "__acker[0]", not at, digits, f"{xor:016x}", f"{value:016x}"
        )


def shop_trees(text: str = "Order(id=7, article='A-1047', count=2)") -> Traces:
    """A failed tree whose first record is `text`, its replay, and 60 complete trees."""
    failed = TupleTrace(
        root=FAILED_ROOT,
        outcome="failed",
        message_id="'order-7'",
        number=7,
        spout="orders[0]",
        worker=0,
        attempt=1,
        emitted_s=BEGUN_S,
        ended_s=BEGUN_S + 0.0312,
        cause="exception",
        reason="exception in price[2]: KeyError: 'A-1047'",
        hops=(
            hop(0xA1, None, "orders[0] parse[1] 1", (0.2, 4.9, 9.6), text),
            hop(0xA2, 0xA1, "parse[1] price[2] 2", (9.1, 21.5, 30.4), "Parsed(article='A-1047')",
                "exception"),
            hop(0xA3, 0xA1, "parse[1] price[4] 0", (9.2, 14.1, 17.0), "Parsed(article='B-22')"),
            hop(0xA4, 0xA3, "price[4] recommend[5] 1", (16.2, 24.0, 28.0), "Priced(total=19.9)"),
            hop(0xA5, 0xA3, "price[4] audit[0] 3", (16.4, None, None), "Priced(total=19.9)"),
        ),
        dropped=0,
        reports=tuple(reports((0xA1,), (0xA1, 0xA2, 0xA3), (0xA3, 0xA4, 0xA5), (0xA4,))),
    )  # fmt: skip
    complete = replace(
        failed, outcome="complete", attempt=1, cause=None, reason="", hops=failed.hops[:1],
        reports=tuple(reports((0xA1,), (0xA1,))),
    )  # fmt: skip
    replay = replace(complete, root="0001000001000008", attempt=2, emitted_s=BEGUN_S + 1,
                     ended_s=BEGUN_S + 1.5)  # fmt: skip
    others = tuple(
        replace(complete, root=f"00010000020000{n:02x}", message_id=f"'order-{n + 100}'",
                emitted_s=BEGUN_S - n, ended_s=BEGUN_S - n + 0.012)
        for n in range(1, 61)
    )  # fmt: skip
    return Traces((replay, failed, *others), ())
