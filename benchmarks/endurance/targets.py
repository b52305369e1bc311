"""The targets of the endurance experiments: bounds on their figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.endurance.deliveries import worst
from benchmarks.figures import Target

LAYOUTS = ("isolate", "pack")
_COUNTS = ("lost", "acked_early", "timeouts", "quarantined", "dead_letters")
TARGETS = (
    *(
        target
        for layout in LAYOUTS
        for target in (
            Target(f"chaos/{layout}/lost", at_most=0),
            Target(f"chaos/{layout}/acked_early", at_most=0),
            Target(f"chaos/{layout}/timeouts", at_most=0),
            Target(f"chaos/{layout}/quarantined", at_most=0),
            Target(f"chaos/{layout}/dead_letters", at_most=0),
            Target(f"chaos/{layout}/median_s", at_most=5),
            Target(f"chaos/{layout}/worst_s", at_most=10),
        )
    ),
    Target("slow/timeouts", at_most=0),
    Target("slow/replays", at_most=0),
    Target("slow/of_bound", at_most=1),
    Target("poison/wrong", at_most=0),
    Target("poison/rate", at_least=0.95),
    Target("programs/missing", at_most=0),
    Target("programs/repeated", at_most=0),
    Target("load/lost", at_most=0),
    Target("load/decided_s", at_most=60),
    Target("load/lag_s", at_most=10),
    Target("load/changes", at_most=2),
    Target("load/changes_of_key", at_most=0),
    Target("groups/lost", at_most=0),
    Target("groups/batch_s", at_most=1),
    Target("groups/slower", at_most=1.2),
    Target("groups/larger", at_most=1.1),
    *(
        Target(f"soak/{figure}", at_most=0)
        for figure in (
            *("failed", "lost", "wrong_counts", "dead_letters", "quarantined", "not_flat"),
            *("missing_rows", "wrong_rows", "lost_rows", "low_totals"),
        )
    ),
    Target("soak/rows_of_spark", at_least=1),
)


def figures_of(report: Mapping[str, Any]) -> dict[str, float]:
    """The figures that a report has, by the names of the targets."""
    figures = {}
    for layout, run in report.get("chaos", {}).items():
        figures |= {f"chaos/{layout}/{n}": run[n] for n in _COUNTS}
        for name in ("median_s", "worst_s"):
            figures[f"chaos/{layout}/{name}"] = worst(run["victims"], name)
    for part in ("slow", "poison", "programs", "load", "groups", "soak"):
        figures |= {f"{part}/{name}": value for name, value in report.get(part, {}).items()}
    return figures


def judge_all(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All targets; those that were not measured are neither met nor missed."""
    figures = figures_of(report)
    return [target.judge(figures.get(target.figure)) for target in TARGETS]
