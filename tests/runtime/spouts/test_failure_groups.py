"""Tests of the groups of failures in statistics: what is alike, how often it failed, its size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import starmap
from math import exp
from pathlib import Path
from typing import NamedTuple

import pytest

from sunshower import Counter, Number, Records, Retry, Topology, secret
from sunshower.failures import Cause, Failure, group_key, normalised
from sunshower.runtime.inline import run_inline
from sunshower.runtime.tasks.spouts.replays import FailureGroups, _whole
from sunshower.simulation.cluster import SimCluster


def failed(component: str, reason: str, cause: Cause = Cause.EXCEPTION) -> Failure:
    return Failure(cause, component, 0, reason)


def add(groups: FailureGroups, failure: Failure, now_s: float = 0.0, count: int = 1) -> None:
    groups.add(failure, count, now_s, lambda: ("id", "record", ()))


def test_failures_of_one_message_are_one_group_whatever_their_records() -> None:
    groups = FailureGroups()
    for at_s, key in ((10.0, "A-1"), (20.0, "B-22"), (30.0, "C")):
        add(groups, failed("a", f"KeyError: '{key}' in row {at_s}"), at_s)
    add(groups, failed("b", "KeyError: 'A-1' in row 1"), 40.0, count=60)
    add(groups, failed("a", "late", Cause.TIMEOUT), 50.0)
    newest = groups.newest(50.0)
    assert [(g.failure.component, g.failure.cause, g.count) for g in newest] == [
        ("a", Cause.TIMEOUT, 1),
        ("b", Cause.EXCEPTION, 60),
        ("a", Cause.EXCEPTION, 3),
    ]
    assert [(group.first_s, group.last_s) for group in newest][-1] == (10.0, 30.0)
    assert newest[-1].failure.reason == "KeyError: 'C' in row 30.0"
    assert newest[1].rate == pytest.approx(exp(-10 / 60))
    assert groups.newest(1e6)[1].rate == pytest.approx(0.0)


def test_what_the_records_of_a_group_have_in_common_once_there_are_three() -> None:
    groups, failure = FailureGroups(), failed("totals", "ValueError: no amount")

    def fail(message: str, *fields: str) -> str:
        groups.add(failure, 1, 0.0, lambda: (message, "record", fields))
        (group,) = groups.newest(0.0)
        return group.in_common

    assert fail("1", "number=1", "customer='c-13'", "shop='a'") == ""
    assert fail("1", "number=1", "customer='c-13'", "shop='a'") == ""  # again, the same message
    assert fail("2", "number=2", "customer='c-13'", "shop='a'") == ""
    assert fail("3", "number=3", "customer='c-13'", "shop='b'") == "customer='c-13'"
    (group,) = groups.newest(0.0)
    assert (group + group).in_common == "customer='c-13'"
    assert (group + replace(group, alike=())).in_common == ""
    assert fail("4", "number=4", "customer='c-14'", "shop='b'") == ""


@pytest.mark.parametrize(
    ("reason", "group"),
    [
        ("KeyError: 'A-1047'", "KeyError: …"),
        ('no row "7" of 1,200.5', "no row … of …"),
        ("at 0x7f00aa: gone\nwith more", "at …: gone"),
        ("order 550e8400-e29b-41d4-a716-446655440000", "order …"),
        ("refused", "refused"),
        ("can't find 'x', nor b'y'", "can't find …, nor …"),
        ("-1 is below +2.5e-3, and -inf is None", "… is below …, and … is …"),
        ("shop-7 is True", "shop-… is …"),
        ("TypeError: Nonesuch is none", "TypeError: Nonesuch is none"),
        ("E: no (step `f`, record R(paid=True, n=-1)); did you mean 'n'?", "E: no (step `f`)"),
        ("E: no (step `f`, fields `a`, `b` of R(a=x, b=y))", "E: no (step `f`, fields `a`, `b`)"),
        ("E: no (step `f`)", "E: no (step `f`)"),
    ],
)
def test_what_differs_from_record_to_record_is_left_out(reason: str, group: str) -> None:
    assert normalised(reason) == group


class Payment(NamedTuple):
    paid: bool
    coupon: str | None
    cents: int
    url: str


URL = "https://shop.example.com/products/electronics/computers/laptops/brands/models/item-{}.html"


@pytest.mark.parametrize("message", ["boom", "boom " * 20, "boom " * 2_000])
def test_one_bug_is_one_group_whatever_its_records(message: str, tmp_path: Path) -> None:
    rows = [Payment(n % 2 > 0, None if n % 3 else "c", n - 3, URL.format(n)) for n in range(12)]
    topology = Topology("shop")
    retry = Retry(attempts=1, dead_letters=str(tmp_path / "dead.jsonl"))

    def refuse(payment: Payment) -> tuple[int]:
        raise ValueError(message)

    payments = topology.spout("payments", Records(rows, type=Payment), retry=retry)
    payments.map(refuse, fields=["a"])
    snapshot = run_inline(topology.graph()).snapshot
    (group,) = snapshot.failure_groups()
    assert (group.count, group.in_common) == (12, "")
    assert "step `refuse`" in group.failure.reason
    short = {group_key("", "", "", group.failure.short.reason)}
    for other in rows:
        reason = f"ValueError: {message} (step `refuse`, record {other})"
        short.add(group_key("", "", "", Failure(Cause.EXCEPTION, reason=reason).short.reason))
    assert len(short) == 1


def test_fields_that_are_shown_only_in_part_are_not_in_common(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fields = {"url": URL.format(1), "shop": "a" * 60, "é": "é" * 40, "key": "secret-1"}
    monkeypatch.setattr(secret, "_known", {"secret-1": "***"})
    assert [*filter(None, starmap(_whole, fields.items()))] == [f"shop='{'a' * 60}'"]


def test_groups_are_few_and_short_whatever_fails() -> None:
    groups = FailureGroups()
    for n in range(100):
        add(groups, Failure(Cause.EXCEPTION, f"bolt-{n}", 0, "é" * 9_000, traceback="x" * 90_000))
    failures = [group.failure for group in groups.newest(0.0)]
    assert [failure.component for failure in failures] == [f"bolt-{n}" for n in range(99, 91, -1)]
    assert all(len(failure.reason.encode()) <= 2048 for failure in failures)
    assert all(len(failure.traceback) <= 2048 for failure in failures)


def refuse_sevens(number: Number) -> Iterator[Number]:
    if number.value == 7:
        raise ValueError("seven is refused")
    yield number


def test_the_snapshot_says_why_and_where_a_tree_failed() -> None:
    topology = Topology("numbers", attempts_max=1000, workers=2)
    counted = topology.spout("count", Counter(20))
    counted.shuffle().bolt("check", refuse_sevens, 2)
    run = SimCluster(1).submit(topology.graph())
    while not any(task.failures for task in run.snapshot().tasks()):
        assert not run.wait(0.01)
    (spout,) = (task for task in run.snapshot().tasks() if task.component == "count")
    (group,) = spout.failures
    assert group.count >= 1
    assert group.example == "{'value': 7}"
    failure = group.failure
    assert (failure.cause, failure.component) == (Cause.EXCEPTION, "check")
    step = "(step `refuse_sevens`, record Number(value=7))"
    assert failure.reason == f"ValueError: seven is refused {step}"
    assert "refuse_sevens" in failure.traceback
