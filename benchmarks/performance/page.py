"""Generates docs/PERFORMANCE.md; `python -m benchmarks.performance.page` writes it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import profiling, results_file
from benchmarks.figures import Target, with_spread
from benchmarks.performance.charts import Plot, plots
from benchmarks.performance.sections import SECTIONS, Section
from benchmarks.sweeps import model
from benchmarks.targets import CURRENT, EARLIER

DOCS = Path(__file__).parents[2] / "docs"
NAME, FOLDER = "PERFORMANCE.md", "performance"
FRAMES = results_file.PATH.with_name("page.json")  # frame times of the web page, if it exists
_LINE_MAX = 100


def files(
    results: Mapping[str, Any],
    frames: Mapping[str, Any] | None = None,
    profiles: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """Path below docs/ → text: the page and its plots. The same results give the same text.
    `profiles`: those of `python -m benchmarks --profile`."""
    drawn = plots(results, CURRENT)
    page = "\n\n".join(_parts(results, drawn, frames, profiles or {})) + "\n"
    return {NAME: page, **{f"{FOLDER}/{plot.name}.svg": plot.svg for plot in drawn}}


def write_page(results: Mapping[str, Any], docs: Path = DOCS) -> None:
    """Write the page and its plots, and remove plots that it no longer has."""
    pages = files(results, read_frames(), profiling.read())
    (docs / FOLDER).mkdir(exist_ok=True)
    for old in (docs / FOLDER).glob("*.svg"):
        if f"{FOLDER}/{old.name}" not in pages:
            old.unlink()
    for path, text in pages.items():
        (docs / path).write_text(text, encoding="utf-8")


def read_frames(path: Path = FRAMES) -> dict[str, Any] | None:
    """Frame times of the web page, which `make bench` does not measure; None if there are none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def missed_without_reason(results: Mapping[str, Any]) -> list[str]:
    """The figures that miss their targets and have no reason."""
    judged = [(target, _judge(results, target)["met"]) for target in (*CURRENT, *EARLIER)]
    return [target.figure for target, met in judged if met is False and not target.reason]


def _parts(
    results: Mapping[str, Any],
    drawn: Sequence[Plot],
    frames: Mapping[str, Any] | None,
    profiles: Mapping[str, Any],
) -> Iterator[str]:
    yield "# Performance"
    yield _wrap(
        "`make bench` (15 minutes) and `make bench-all` (everything) generate this page from "
        "[all samples](../benchmarks/results/latest.json); do not edit it. The method and its "
        "caveats are in [benchmarks/README.md](../benchmarks/README.md)."
    )
    yield from _environment(results)
    yield _wrap(
        "A figure is the median of its rounds, with the lowest and the highest value in brackets. "
        "A ratio is computed in each round. *cores* is the number of cores that the processes of "
        "the run kept busy, *others* the number that other processes kept busy before the run. Do "
        "not trust a row in which *others* is above 0.2."
    )
    yield "## Targets"
    yield _targets(results, CURRENT)
    yield from _pictures(drawn, "Targets")
    yield from _reasons(results, CURRENT, profiles)
    yield "## Targets of earlier work"
    yield _targets(results, EARLIER)
    yield from _reasons(results, EARLIER, profiles)
    for section in _sections(results):
        yield from _section(results, section, drawn)
    yield from _model(results)
    if frames:
        yield "## The web page"
        yield _wrap(
            "[The page](UI.md) shows a topology with 50 components of 100 tasks each, with "
            "prepared numbers, in Chromium without a graphics card; `python -m "
            "tests.web.screenshots` measures it. Other programs change the processor times, of the "
            "page's thread and of the server, little."
        )
        yield _table(("what", "value", "unit", "date", "commit"), _frame_rows(frames))


def _environment(results: Mapping[str, Any]) -> Iterator[str]:
    machine = results.get("machine")
    if not machine:
        return
    versions = results["versions"].items()
    had = ", ".join(f"{name} {version}" for name, version in versions if version)
    yield _wrap(
        f"The last run: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, "
        f"commit {results['commit']}. Versions: {had}."
    )


def _targets(results: Mapping[str, Any], targets: Iterable[Target]) -> str:
    rows: list[tuple[str, ...]] = []
    above = ""
    for target in targets:
        judged = _judge(results, target)
        spread = results["ratio_spreads"].get(target.figure, ())
        bound = f"{target.bound} × {target.against}" if target.against else target.bound
        value = "–" if judged["value"] is None else with_spread(judged["value"], spread)
        verdict = {None: "not measured", True: "met", False: "**missed**"}[judged["met"]]
        row = "" if target.row == above else target.row
        above = target.row
        rows.append((row, bound, value, verdict, f"`{target.figure}`"))
    return _table(("workload", "target", "value", "", "figure"), rows)


def _judge(results: Mapping[str, Any], target: Target) -> dict[str, Any]:
    known = {
        f"{row['workload']}/{row['system']}/{row['variant']}": row["median"]
        for row in results["results"]
    }
    return target.judge({**known, **results["ratios"]}.get(target.figure))


def _reasons(
    results: Mapping[str, Any], targets: Iterable[Target], profiles: Mapping[str, Any]
) -> Iterator[str]:
    by_reason: dict[str, list[Target]] = {}
    for target in targets:
        if _judge(results, target)["met"] is False and target.reason:
            by_reason.setdefault(target.reason, []).append(target)
    if by_reason:
        yield "Why targets are missed:"
        yield "\n".join(
            _wrap(f"- {_figures(missed)}: {reason}", "  ") for reason, missed in by_reason.items()
        )
        missed = [target for those in by_reason.values() for target in those]
        if reasons := list(profiling.sentences(profiles, missed)):
            yield "Profiles of these runs (`python -m benchmarks --profile`):"
            yield "\n".join(_wrap(f"- {reason}", "  ") for reason in reasons)


def _figures(targets: Iterable[Target]) -> str:
    return ", ".join(f"`{target.figure}`" for target in targets)


def _sections(results: Mapping[str, Any]) -> list[Section]:
    """The sections that have rows, and one for the workloads that are in no section."""
    measured = dict.fromkeys(row["workload"] for row in results["results"])
    named = {workload for section in SECTIONS for workload in section.workloads}
    others = tuple(workload for workload in measured if workload not in named)
    chosen = [section for section in SECTIONS if measured.keys() & set(section.workloads)]
    return [*chosen, Section("Others", others, "")] if others else chosen


def _section(results: Mapping[str, Any], section: Section, drawn: Sequence[Plot]) -> Iterator[str]:
    yield f"## {section.heading}"
    if section.description:
        yield _wrap(section.description)
    yield from _pictures(drawn, section.heading)
    if section.by_system:
        yield _by_system(results, section)
    rows = [
        (
            *(row["workload"], row["system"], _variant(row)),
            *(with_spread(row["median"], row["spread"]), row["unit"]),
            *(_or_dash(row.get(name)) for name in ("p50_s", "p99_s", "cores", "others")),
            *(str(row["rounds"]), row["date"], row["commit"]),
        )
        for workload in section.workloads
        for row in results["results"]
        if row["workload"] == workload
    ]
    heads = ("workload", "system", "variant", "median", "unit", "p50 s", "p99 s")
    yield _table((*heads, "cores", "others", "rounds", "date", "commit"), rows)
    ratios = [
        (
            *(f"`{name}`", with_spread(value, results["ratio_spreads"][name])),
            *(str(run[part]) for part in ("rounds", "date", "commit")),
        )
        for name, value in results["ratios"].items()
        if name.partition("/")[0] in section.workloads
        for run in (results["ratio_runs"][name],)
    ]
    if ratios:
        yield _table(("ratio", "median", "rounds", "date", "commit"), ratios)


def _by_system(results: Mapping[str, Any], section: Section) -> str:
    """A row for each variant, a column for each system, with how many times as fast we are."""
    chosen = [row for row in results["results"] if row["workload"] in section.workloads]
    systems = [*dict.fromkeys(row["system"] for row in chosen)]
    cells: dict[str, dict[str, str]] = {}
    for row in chosen:
        workload, system, variant = row["workload"], row["system"], row["variant"]
        ratio = results["ratios"].get(f"{workload}/{variant}/{system}")
        times = "" if ratio is None else f" ({ratio:.3g} ×)"
        cells.setdefault(variant, {})[system] = f"{row['median']:.3g}{times}"
    return _table(
        ("", *systems),
        [(name, *(row.get(system, "–") for system in systems)) for name, row in cells.items()],
    )


def _variant(row: Mapping[str, Any]) -> str:
    return f"{row['variant']} ({row['setup']})" if row.get("setup") else row["variant"]


def _pictures(drawn: Iterable[Plot], section: str) -> Iterator[str]:
    for plot in drawn:
        if plot.section == section:
            yield f"![{plot.description}]({FOLDER}/{plot.name}.svg)"


def _model(results: Mapping[str, Any]) -> Iterator[str]:
    """The results of the model of a large cluster, with the measured costs."""
    yield "## Model of a large cluster"
    yield _wrap(
        "[A model](../benchmarks/sweeps/model.py) computes the load of 100 nodes at 10 M tuples a "
        "second, with a worker for each core, or with as few workers as the processor time allows. "
        "It was not measured."
    )
    yield "\n".join(_wrap(f"- {finding}", "  ") for finding in model.findings(results))
    yield _table(model.HEADS, model.rows(results))


def _frame_rows(frames: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return [
        (row["what"], f"{row['value']:,.4g}", row["unit"], row["date"], row["commit"])
        for row in frames["rows"]
    ]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _or_dash(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _wrap(text: str, indent: str = "") -> str:
    lines = [""]
    for word in text.split():
        if lines[-1].strip() and len(lines[-1]) + 1 + len(word) > _LINE_MAX:
            lines.append(indent + word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return "\n".join(lines)


if __name__ == "__main__":
    write_page(results_file.read())
    sys.exit()
