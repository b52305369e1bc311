"""Checks that docs/METRICS.md, the alert rules and the dashboard name only existing metrics."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from sunshower.cli.metrics import PREFIX
from sunshower.cli.statistics import OF_TOP
from sunshower.failures import Cause
from sunshower.runtime.control.lifecycle import State
from sunshower.runtime.control.measures import CAPACITY, MEASURES, Kind
from sunshower.runtime.events.health import WaitKind
from sunshower.runtime.events.progress import LimitKind

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/METRICS.md").read_text(encoding="utf-8")
ALERTS = ROOT / "deploy/prometheus/alerts.yaml"
RULES: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
DASHBOARD = json.loads((ROOT / "deploy/grafana/sunshower.json").read_text())
LABELS = {
    PREFIX + measure.name + suffix: {"topology", *measure.labels, *labels}
    for measure in MEASURES
    for suffix, labels in (
        [("_bucket", {"le"}), ("_sum", set()), ("_count", set())]
        if measure.kind is Kind.HISTOGRAM
        else [("", set())]
    )
}
ENUMS: dict[str, set[str]] = {
    "cause": {*Cause},
    "kind": {*WaitKind},
    "state": {*State},
    "by": {*LimitKind},
}


def expressions() -> list[str]:
    texts = [rule["expr"] for rule in RULES]
    texts += [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    return [text.replace("$__rate_interval", "5m") for text in texts]


def selectors(expression: Any) -> list[Any]:
    """All metrics that an expression selects."""
    if isinstance(expression, promql_parser.VectorSelector):
        return [expression]
    children = (
        getattr(expression, name, None) for name in ("lhs", "rhs", "expr", "vector_selector")
    )
    parts = [*children, *getattr(expression, "args", ())]
    return [selector for child in parts if child is not None for selector in selectors(child)]


@pytest.mark.parametrize("text", expressions())
def test_an_expression_is_valid_and_its_metrics_and_labels_exist(text: str) -> None:
    used = selectors(promql_parser.parse(text))
    assert {selector.name for selector in used} == set(re.findall(r"sunshower_\w+", text))
    for metric in used:
        assert metric.name in LABELS
        for matcher in metric.matchers.matchers:
            assert matcher.name in LABELS[metric.name]
            assert matcher.name == "topology" or matcher.value in ENUMS[matcher.name]


def test_legends_and_messages_have_labels_of_their_expressions() -> None:
    texts = [(rule["expr"], rule["annotations"]["summary"]) for rule in RULES]
    texts += [
        (target["expr"], target.get("legendFormat", ""))
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
    ]
    for expression, text in texts:
        for name in re.findall(r"\{\{ ?(?:\$labels\.)?([a-z]+) ?\}\}", text):
            metrics = re.findall(r"sunshower_\w+", expression)
            assert all(name in LABELS[metric] for metric in metrics), text


def test_metrics_follow_the_conventions_of_prometheus() -> None:
    for measure in MEASURES:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", measure.name)
        assert measure.name.endswith("_total") is (measure.kind is Kind.COUNTER)
        assert {*measure.labels} <= {"component", "source", "stream", *ENUMS}, "labels are bounded"


def test_the_page_lists_every_metric() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \| (.*) \|$", PAGE, re.MULTILINE)
    assert rows == [
        (
            PREFIX + measure.name,
            measure.kind.value,
            ", ".join(f"`{label}`" for label in ("topology", *measure.labels)),
            measure.help,
        )
        for measure in MEASURES
    ]


def test_the_page_lists_every_metric_that_ray_has() -> None:
    rows = re.findall(r"^\| `ray_sunshower_(\w+)` \| \w+ \| (.*) \|$", PAGE, re.MULTILINE)
    in_ray = [(measure.name, measure.help) for measure in MEASURES if measure.in_ray]
    assert rows == [*in_ray, CAPACITY]


def test_the_page_explains_every_column_of_top() -> None:
    rows = re.findall(r"^\| (`[^|]*`) \| ", PAGE.partition("## As JSON")[0], re.MULTILINE)
    assert [name for row in rows for name in re.findall("`([^`]+)`", row)] == [*OF_TOP]


def test_the_page_lists_every_alert() -> None:
    assert re.findall(r"^\| `(Sunshower\w+)` \|", PAGE, re.MULTILINE) == [
        rule["alert"] for rule in RULES
    ]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_accepts_the_rules() -> None:
    done = subprocess.run(
        ["promtool", "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
