"""Reads and writes the results file: rows and ratios, each with its day, commit and rounds."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import Ratio, Series, Target, rounded, significant

PATH = Path(__file__).parent / "results" / "latest.json"


@dataclass(frozen=True)
class Run:
    """The run of a row or a ratio. `date`: the day in UTC."""

    date: str
    commit: str | None
    rounds: int


def empty() -> dict[str, Any]:
    """The content before the first run."""
    return {"results": [], "ratios": {}, "ratio_spreads": {}, "ratio_runs": {}}


def read(path: Path = PATH) -> dict[str, Any]:
    """The content of the file; that of `empty` if there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else empty()


def read_committed(path: Path = PATH) -> dict[str, Any]:
    """The content in the last commit; that of the file if git does not have it."""
    command = ["git", "-C", str(path.parent), "show", f"HEAD:./{path.name}"]
    try:
        return json.loads(subprocess.check_output(command, stderr=subprocess.DEVNULL))
    except (OSError, subprocess.CalledProcessError):
        return read(path)


def write(results: Mapping[str, Any], path: Path = PATH) -> None:
    """Replace the whole file, atomically."""
    path.parent.mkdir(exist_ok=True)
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    draft.replace(path)


def rows_and_ratios(series: Sequence[Series], ratios: Iterable[Ratio], run: Run) -> dict[str, Any]:
    """The rows and ratios of a comparison, without ratios of which one key was not measured."""
    known = {entry.key for entry in series}
    possible = [ratio for ratio in ratios if {ratio.over, ratio.under} <= known]
    compared = {ratio.name: ratio.of(series) for ratio in possible}
    better = {ratio.name: "more" if ratio.over.is_rate else "less" for ratio in possible}
    return {
        "results": [_row(entry, run) for entry in series],
        "ratios": {name: significant(ratio.median) for name, ratio in compared.items()},
        "ratio_spreads": {name: rounded(ratio.spread) for name, ratio in compared.items()},
        "ratio_runs": {
            name: {**asdict(run), "rounds": len(ratio.samples), "better": better[name]}
            for name, ratio in compared.items()
        },
    }


def merge(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The content of `before`, in which the rows and ratios of `now` replace the same ones."""
    rows = {_name(row): row for row in [*before["results"], *now["results"]]}
    parts = ("ratios", "ratio_spreads", "ratio_runs")
    return {
        "results": list(rows.values()),
        **{part: {**before[part], **now[part]} for part in parts},
    }


def with_targets(
    results: Mapping[str, Any], environment: Mapping[str, Any], targets: Sequence[Target]
) -> dict[str, Any]:
    """The content of the file. `environment`: machine, versions, commit, settings (last run)."""
    known = {_name(row): row["median"] for row in results["results"]} | results["ratios"]
    judged = [target.judge(known.get(target.figure)) for target in targets]
    return {**environment, **results, "targets": judged}


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['workload']}/{row['system']}/{row['variant']}"


def _row(series: Series, run: Run) -> dict[str, Any]:
    key = series.key
    return {
        "workload": key.workload,
        "system": key.system,
        "variant": key.variant,
        **({"setup": series.setup} if series.setup else {}),
        "median": significant(series.median),
        "spread": rounded(series.spread),
        "unit": key.unit,
        "samples": rounded(series.samples),
        **{name: significant(value, 3) for name, value in series.more.items()},
        **asdict(run),
        "rounds": len(series.samples),
    }
