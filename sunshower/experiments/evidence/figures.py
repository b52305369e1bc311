"""Computes the figures of a run (counts, throughput, latencies) from its history."""

from __future__ import annotations

from collections import Counter

import numpy as np

from sunshower.experiments.checkers.delivery import duplicates
from sunshower.experiments.evidence.batch_evidence import batch_figures
from sunshower.experiments.evidence.event_history import F64, History, lookup
from sunshower.runtime.events.event_log import What


def figures_of(history: History) -> dict[str, float]:
    """Return counts and times by name; causes and times that do not occur are left out.

    emitted, replays           all emits, and the repeated ones
    messages, completed        all messages, and the completed ones
    failed, failed: timeout …  failed attempts, in total and by cause
    dead, written, duplicates
    throughput                 messages completed a second, from the first emit to the last
    latency_p50_s, …_p99_s     of an attempt, from its emit to its completion
    batches committed, …       of Trident programs, see `batch_figures`
    """
    emitted, failed = history.rows(What.EMITTED), history.rows(What.FAILED)
    accounts = history.accounts
    done = accounts.completed_s[np.isfinite(accounts.completed_s)]
    found: dict[str, float] = {
        "emitted": len(emitted),
        "messages": len(accounts.messages),
        "completed": len(done),
        "replays": len(emitted) - len(accounts.messages),
        "failed": len(failed),
        "dead": len(history.rows(What.DEAD)),
        "written": len(history.rows(What.WROTE)),
        "duplicates": duplicates(history),
    }
    for cause, count in sorted(Counter(map(str, failed.details)).items()):
        found[f"failed: {cause}"] = count
    if len(done):
        took_s = float(done.max() - emitted.at_s[0])
        found["throughput"] = round(len(done) / took_s, 3) if took_s else 0.0
    latencies_s = latencies(history)
    if len(latencies_s):
        median, tail = np.percentile(latencies_s, (50, 99)).tolist()
        found |= {"latency_p50_s": round(median, 6), "latency_p99_s": round(tail, 6)}
    return found | batch_figures(history)


def latencies(history: History) -> F64:
    """Return the latency in seconds of each completion, in their order: shape (n,)."""
    emitted, completed = history.rows(What.EMITTED), history.rows(What.COMPLETED)
    found = completed.at_s - lookup(emitted.roots, emitted.at_s, completed.roots, np.nan)
    return found[np.isfinite(found)]
