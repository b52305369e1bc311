"""How the batches of a stream program stand, in a line for each group."""

from __future__ import annotations

from collections.abc import Mapping

from sunshower.runtime.metrics import Snapshot
from sunshower.trident.coordinator import Status

_PHASES = [status.value for status in Status]


def standing(group: str, figures: Mapping[str, float], snapshot: Snapshot) -> str:
    """Such as: `batches of words: 17 committing (attempt 1, 512 rows, 0.4 s), 2 more begun; 16
    committed; the last took 0.35 + 0.05 s; 4,000 rows emitted, 12,000 behind`. `figures` are those
    of its coordinator. Sums are those of lives that last."""
    names = [name.removesuffix("/tasks") for name in figures if name.endswith("/tasks")]
    spouts = [snapshot.figures(name.removeprefix("spout ")) for name in names]
    txid, active = int(figures["txid"]), int(figures["batches active"])
    phase = figures.get(f"batch {txid}/phase")
    if phase is None:
        now = f"{txid} is the next"
    else:
        attempt, age_s = figures[f"batch {txid}/attempt"], figures[f"batch {txid}/age seconds"]
        rows = sum(one.get(f"batch {txid}/rows", 0) for one in spouts)
        now = (
            f"{txid} {_PHASES[int(phase)]} (attempt {attempt:.0f}, {rows:,.0f} rows, {age_s:.1f} s)"
        )
        now += f", {active - 1} more begun" if active > 1 else ""
    done = f"{figures['batches committed']:,.0f} committed"
    for name, said in (("batches skipped", "skipped"), ("attempts failed", "attempts failed")):
        done += f", {figures[name]:,.0f} {said}" if figures[name] else ""
    parts = [now, done]
    if unavailable_s := figures.get("seconds unavailable"):
        parts.append(f"waiting for {unavailable_s:,.0f} s for a dependency that is away")
    if figures["batches committed"]:
        parts.append(
            f"the last took {figures['process seconds']:.2f} + {figures['commit seconds']:.2f} s"
        )
    parts.append(f"{sum(one.get('rows emitted', 0) for one in spouts):,.0f} rows emitted")
    if any("lag" in one for one in spouts):  # those that know it
        parts[-1] += f", {sum(one.get('lag', 0) for one in spouts):,.0f} behind"
    return f"batches of {group}: {'; '.join(parts)}"
