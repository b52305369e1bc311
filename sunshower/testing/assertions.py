"""Assertions of tests: no record is lost, and each was emitted as often as expected."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from sunshower.records import key_of
from sunshower.testing.observed_run import ObservedRun

_SHOWN = 5


def assert_lossless(run: ObservedRun) -> None:
    """Assert that every record that a spout emitted was processed completely.

    That is: nothing is pending, nothing became a dead letter, no untracked record failed, and every
    record that the test fed is acked. Call it after `finish`. What reached a sink is checked by
    `assert_counts`.
    """
    lines = []
    for spout in run.spouts:
        counts = run.counts(spout)
        if counts.pending:
            lines.append(f"{counts.pending} records of spout {spout!r} are pending")
        if counts.dead:
            lines.append(f"{counts.dead} records of spout {spout!r} are dead letters")
    for spout, feeder in run.feeders.items():
        if pending := feeder.pending:
            lines.append(f"of spout {spout!r} are not acked: {_some(pending)}")
    if run.snapshot.untracked:
        lines.append(f"an untracked record was lost: {run.snapshot.untracked}")
    if lines:
        raise AssertionError("; ".join(lines))


def assert_counts(
    records: Iterable[Any],
    expected: Mapping[Any, int] | Iterable[Any],
    *,
    at_least: bool = False,
) -> None:
    """Assert that each record occurs as often as expected, in any order.

    `expected`: record → how often, or the records themselves. `at_least`: more often is right,
    too, as after replays; records that are not expected at all are never right.
    """
    found = _tally(records)
    if isinstance(expected, Mapping):
        wanted = {key_of(record): (record, count) for record, count in expected.items()}
    else:
        wanted = _tally(expected)
    lines = []
    for key, (record, count) in wanted.items():
        there = found.get(key, (record, 0))[1]
        if there < count or (there > count and not at_least):
            lines.append(f"{record!r}: {there} instead of {count}")
    surplus = [record for key, (record, _) in found.items() if key not in wanted]
    if surplus:
        lines.append(f"not expected: {_some(surplus)}")
    if lines:
        more = len(lines) - _SHOWN
        raise AssertionError("\n".join(lines[:_SHOWN]) + (f"\n… and {more} more" * (more > 0)))


def _tally(records: Iterable[Any]) -> dict[Hashable, tuple[Any, int]]:
    """Key of a record → the record, and how often it occurs."""
    found: dict[Hashable, tuple[Any, int]] = {}
    for record in records:
        key = key_of(record)
        found[key] = (record, found.get(key, (record, 0))[1] + 1)
    return found


def _some(records: list[Any]) -> str:
    shown = ", ".join(f"{record!r:.200}" for record in records[:_SHOWN])
    more = len(records) - _SHOWN
    return shown + (f" … and {more} more" if more > 0 else "")
